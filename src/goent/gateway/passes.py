"""Whose call is it? A token stands for a worker process, a session for a worker in it."""

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from hmac import compare_digest
from typing import NamedTuple

from goent.domain.guard import ToolGuard

MOST_AT_A_TIME = 256  # requests of one token


class TooMany(Exception):
    """The process has more requests under way than it may."""


class Owner(NamedTuple):
    """Who pays for a call; `warm` calls are nobody's and are answered by the gateway itself."""

    worker: str
    warm: bool = False


class Pass:
    """What is known about the process that holds one token."""

    def __init__(self) -> None:
        self.sessions: dict[str, Owner] = {}
        self.guard: ToolGuard | None = None
        self._last: Owner | None = None
        self._under_way = 0

    @contextmanager
    def request(self) -> Generator[None]:
        """One request of the process. Raises `TooMany`."""
        if self._under_way >= MOST_AT_A_TIME:
            raise TooMany(f"{MOST_AT_A_TIME} requests with this key are under way: try again")
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    def bind(self, session: str, owner: Owner) -> None:
        self.sessions.pop(session, None)  # the last to be bound is the last in order
        self.sessions[session] = owner
        if not owner.warm:
            self._last = owner

    def owners(self, *, session: str, parent: str) -> tuple[Owner, ...]:
        """Who may have made a call, the likeliest first; nobody if no worker was ever bound.

        The parent's owner pays for a child session. A session that nobody announced belongs to one
        of the workers of the process, most likely to the one that was bound last.
        """
        if announced := self.sessions.get(parent) or self.sessions.get(session):
            return (announced,)
        bound = [owner for owner in reversed(self.sessions.values()) if not owner.warm]
        return tuple(dict.fromkeys(bound)) or ((self._last,) if self._last else ())


class Passes:
    """The tokens that are good now."""

    def __init__(self) -> None:
        self._passes: dict[str, Pass] = {}

    def issue(self) -> str:
        token = f"goent_{secrets.token_urlsafe(32)}"
        self._passes[token] = Pass()
        return token

    def revoke(self, token: str) -> None:
        self._passes.pop(token, None)

    def bind(self, *, token: str, session: str, worker: str | None) -> None:
        """Without effect if the token was revoked: its calls are turned away anyhow."""
        if found := self._passes.get(token):
            found.bind(session, Owner("", warm=True) if worker is None else Owner(worker))

    def attend(self, token: str, guard: ToolGuard) -> None:
        """Without effect if the token was revoked."""
        if found := self._passes.get(token):
            found.guard = guard

    def unbind(self, session: str) -> None:
        for each in self._passes.values():
            each.sessions.pop(session, None)

    def find(self, presented: str) -> Pass | None:
        """The pass of a token, compared in constant time with every one that is good."""
        found = None
        for token, each in self._passes.items():
            if compare_digest(token.encode(), presented.encode()):
                found = each
        return found
