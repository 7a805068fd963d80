"""Keeps the connections of one server within limits, so that whoever has a token always gets in.

A connection on which no request has shown a good token yet is a stranger's. When there are too many
of those, the oldest is closed; a program that works sends its first request within milliseconds.
"""

import os
import resource
from typing import Protocol

from goent.domain.types import Value

ROOT = 0


class ConnectionLimits(Value, frozen=True, kw_only=True):
    """How many connections one server holds.

    `other_users`: how many of users other than ours and root, where the system tells who they are.
    """

    total: int = 1024
    strangers: int = 256
    other_users: int = 0


class Held(Protocol):
    """A connection, as the table sees it."""

    user: int | None

    @property
    def is_idle(self) -> bool:
        """No request of it is under way."""
        ...

    def drop(self) -> None: ...


class ConnectionTable:
    """Who is connected. The longest unused come first in both lists."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self._limits = limits
        self._strangers: dict[Held, None] = {}
        self._known: dict[Held, None] = {}

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)

    def welcomes(self, user: int | None) -> bool:
        """May this user connect once more?"""
        if not is_another_user(user):
            return True
        present = sum(is_another_user(each.user) for each in (*self._strangers, *self._known))
        return present < self._limits.other_users

    def make_room(self) -> bool:
        """Close what has to give way to one more connection. False if nothing can."""
        while len(self._strangers) >= self._limits.strangers:
            self._drop(next(iter(self._strangers)))
        while len(self) >= self._most():
            if not self.drop_idle():
                return False
        return True

    def drop_idle(self) -> bool:
        """Close the connection that is missed least. False if every one is at work."""
        oldest = next(iter(self._strangers), None)
        oldest = oldest or next((each for each in self._known if each.is_idle), None)
        if oldest is None:
            return False
        self._drop(oldest)
        return True

    def drop_strangers(self) -> None:
        """Nobody who has shown a token is among them."""
        for each in tuple(self._strangers):
            self._drop(each)

    def add(self, connection: Held) -> None:
        self._strangers[connection] = None

    def authenticated(self, connection: Held) -> None:
        """It showed a good token, now or again."""
        if connection in self._strangers or connection in self._known:
            self.remove(connection)
            self._known[connection] = None

    def remove(self, connection: Held) -> None:
        self._strangers.pop(connection, None)
        self._known.pop(connection, None)

    def _drop(self, connection: Held) -> None:
        self.remove(connection)
        connection.drop()

    def _most(self) -> int:
        """Half of the descriptors are for others: processes, databases, providers."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return self._limits.total if soft < 0 else max(1, min(self._limits.total, soft // 2))


def is_another_user(user: int | None) -> bool:
    return user is not None and user not in (os.geteuid(), ROOT)
