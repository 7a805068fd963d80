"""What did an attempt tell so far? It is on disk as soon as it is told."""

import time
from typing import BinaryIO

from msgspec.structs import replace

from goent.domain.types import Value
from goent.evals.ports import Attempt, LogChosen
from goent.evals.running.earlier import STREAM
from goent.evals.running.folder import Folder, now
from goent.evals.running.watching import Watcher
from goent.evals.traces import (
    PermissionDecision,
    TargetFailure,
    TokenUsage,
    Trace,
    TracedMessage,
    TracedTurn,
)


class Told(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `trace.jsonl`. The first says which attempt it is; a later message replaces one of the same number.

    Messages stand as they come; one with `before` stands in front of the message of that number.
    """

    at: str
    attempt: int | None = None
    number: int | None = None
    before: int | None = None
    message: TracedMessage | None = None
    decision: PermissionDecision | None = None
    usage: TokenUsage | None = None
    cost_usd: float | None = None
    log_path: str | None = None


class Recording:
    """The port `Witness`. A disk that takes no more costs the stream, not the attempt."""

    def __init__(self, attempt: Attempt, run: Folder, folder: str, watcher: Watcher) -> None:
        self._attempt = attempt
        self._run = run
        self._folder = run.path / folder
        self._watcher = watcher
        self._file: BinaryIO | None = None
        self._is_lost = False
        self._messages: dict[int, TracedMessage] = {}
        self._order: list[int] = []
        self._decisions: list[PermissionDecision] = []
        self._turns: list[TracedTurn] = []
        self._usage: TokenUsage | None = None
        self._cost_usd: float | None = None
        self._log_path: str | None = None
        self.begin()

    def begin(self) -> None:
        """Now it is the attempt's turn."""
        self._began, self._since = now(), time.monotonic()

    def timed(self, trace: Trace) -> Trace:
        """With times, where it tells none itself."""
        took = (time.monotonic() - self._since) * 1000
        return replace(
            trace,
            start_time=trace.start_time or self._began,
            end_time=trace.end_time or now(),
            duration_ms=took if trace.duration_ms is None else trace.duration_ms,
        )

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        if number not in self._messages:
            self._order.append(number)
        if before is not None:
            self._order.remove(number)
            self._order.insert(self._order.index(before), number)
        self._messages[number] = message
        self._write(Told(at=now(), number=number, before=before, message=message))

    def decided(self, decision: PermissionDecision) -> None:
        self._decisions.append(decision)
        self._write(Told(at=now(), decision=decision))

    def spent(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        self._usage, self._cost_usd = usage, cost_usd
        self._write(Told(at=now(), usage=usage, cost_usd=cost_usd))

    def log(self, chosen: LogChosen) -> None:
        self._log_path = chosen.file_path
        self._write(Told(at=now(), log_path=chosen.file_path))
        self._watcher.log(chosen)

    def warn(self, text: str) -> None:
        self._watcher.warned(self._run.clean(text))

    def turn(self, turn: TracedTurn) -> None:
        """One of a conversation is over."""
        self._turns.append(turn)

    def cut(self, failure: TargetFailure) -> Trace:
        """What there is of an attempt that failed."""
        return Trace(
            messages=tuple(self._messages[number] for number in self._order),
            usage=self._usage,
            cost_usd=self._cost_usd,
            permissions=tuple(self._decisions),
            log_path=self._log_path,
            failure=failure,
            partial=True,
            turns=tuple(self._turns),
        )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, told: Told) -> None:
        if self._is_lost:
            return
        try:
            if self._file is None:
                self._file = self._opened()
            self._file.write(self._run.encoded(told) + b"\n")
        except OSError as error:
            self._is_lost = True
            self._watcher.warned(f"{self._folder / STREAM}: not written on: {error.strerror}")

    def _opened(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = (self._folder / STREAM).open("ab", buffering=0)
        file.write(self._run.encoded(Told(at=now(), attempt=self._attempt.number)) + b"\n")
        return file
