"""What has happened at the server so far, and how does a test wait for more?"""

from collections import Counter
from collections.abc import Callable

import anyio
import msgspec

from goent.domain.types import Usage, Value
from goent.testing.conversation import Conversation
from goent.testing.script import FaultKind

PATIENCE = 10.0  # seconds a test waits unless it says otherwise
GATE = 60.0  # seconds a request waits at a gate that nobody opens


class Call(Value, frozen=True, kw_only=True):
    """One request and what became of it; `ended` is None while it is under way.

    `usage` is what the vendor bills: all of it when the answer was sent to its end, nothing
    when none began, and otherwise the whole prompt (it was read) and as much of the output as
    was sent, by pieces. `pieces` counts the parts of the answer that went out.
    """

    n: int
    provider: str
    path: str
    started: float
    key: str | None = None
    session: str | None = None
    parent: str | None = None
    request: Conversation | None = None
    case: str | None = None
    step: int | None = None
    fault: FaultKind | None = None
    status: int | None = None
    pieces: int = 0
    usage: Usage = Usage()
    ended: float | None = None
    disconnected: bool = False

    @property
    def model(self) -> str | None:
        return self.request.model if self.request else None

    def __str__(self) -> str:
        place = f"case {self.case!r} step {self.step}" if self.step is not None else "no step"
        state = "under way" if self.ended is None else "gone" if self.disconnected else "ended"
        return f"#{self.n} {self.provider}/{self.model} {place} status {self.status} {state}"


def share(usage: Usage, *, sent: int, of: int) -> Usage:
    """The bill for a part of an answer: its whole prompt, and the output that was sent."""
    return msgspec.structs.replace(
        usage, output=usage.output * sent // of, reasoning=usage.reasoning * sent // of
    )


class CallLog:
    """Every call in order of arrival, and the barriers on it."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._changed = anyio.Event()

    def add(self, call: Call) -> None:
        self.calls.append(call)
        self.notify()

    def change(self, n: int, **changes: object) -> Call:
        call = msgspec.structs.replace(self.calls[n - 1], **changes)
        self.calls[n - 1] = call
        self.notify()
        return call

    async def until(self, done: Callable[[], bool], what: str, timeout: float) -> None:  # noqa: ASYNC109 (the bound belongs to the barrier: its error tells what was seen)
        try:
            with anyio.fail_after(timeout):
                while not done():
                    await self._changed.wait()
        except TimeoutError as error:
            seen = "; ".join(map(str, self.calls)) or "nothing"
            raise TimeoutError(f"{what} within {timeout:g} s; seen: {seen}") from error

    def notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()


class Gates:
    """Doors in the script that a test opens. One that was opened stays open."""

    def __init__(self, arrived: Callable[[], None]) -> None:
        self._notify = arrived
        self._doors: dict[str, anyio.Event] = {}
        self._arrived: Counter[str] = Counter()

    def open(self, name: str) -> None:
        self._doors.setdefault(name, anyio.Event()).set()

    def arrived(self, name: str) -> int:
        return self._arrived[name]

    async def pass_through(self, name: str) -> bool:
        """Wait at the gate; False if nobody opened it."""
        self._arrived[name] += 1
        self._notify()
        with anyio.move_on_after(GATE):
            await self._doors.setdefault(name, anyio.Event()).wait()
            return True
        return False
