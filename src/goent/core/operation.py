"""What is one thing that a client can ask for, and who asks?"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from goent.core.progress_reports import OnProgress
from goent.domain.replies import Status
from goent.domain.requests import Request
from goent.domain.types import Value

Q = TypeVar("Q", bound=Request)
R = TypeVar("R", bound=Value)


async def _silent(_: Status, __: str) -> None: ...


@dataclass(slots=True, kw_only=True)
class Caller:
    """A connection: who is asking, from where, and what it has been given already."""

    name: str
    cwd: Path
    cursors: dict[str, int] = field(default_factory=dict[str, int])
    on_progress: OnProgress = _silent
    warnings: tuple[str, ...] = ()  # what each of its workers' spawning tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that can be asked. `call` takes the arguments as parsed JSON."""

    name: str
    request: type[Request]
    reply: type[Value]
    call: Callable[[object, Caller], Awaitable[Value]]


class Make(Protocol):
    """Makes an operation of what answers it."""

    def __call__(
        self, name: str, request: type[Q], reply: type[R], run: Callable[[Q, Caller], Awaitable[R]]
    ) -> Operation: ...
