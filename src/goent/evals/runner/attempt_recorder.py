"""Records an attempt on disk while it runs; also the port through which a run is watched."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec.structs import replace

from goent.domain.types import Value
from goent.evals.eval_ports import CaseAttempt, StreamLogFile
from goent.evals.eval_results import Row
from goent.evals.runner.run_folder import STREAM_FILE, StoredRun, utc_now
from goent.evals.traces import (
    PermissionDecision,
    TargetFailure,
    TokenUsage,
    Trace,
    TracedMessage,
    TracedTurn,
)


class RunPlan(Value, frozen=True, kw_only=True):
    """What a run is about to do. `total` counts the trials; `kept` of them are there from before.

    `to_make`: how many of the others are each target's.
    """

    total: int
    kept: int
    targets: tuple[str, ...]
    out: Path
    to_make: Mapping[str, int] = {}


class RunWatcher(Protocol):
    """All of it is told in order and at once: whoever needs time takes it elsewhere."""

    def planned(self, plan: RunPlan) -> None: ...

    def began(self, attempt: CaseAttempt) -> None: ...

    def log(self, chosen: StreamLogFile) -> None: ...

    def failed(
        self, attempt: CaseAttempt, failure: TargetFailure, *, again_in_s: float, by: str
    ) -> None:
        """The attempt failed, and another one follows, by the same target or the next fallback."""
        ...

    def ended(self, row: Row) -> None: ...

    def warned(self, text: str) -> None: ...


class TraceLine(Value, frozen=True, kw_only=True, omit_defaults=True):
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


class AttemptRecorder:
    """The port `AttemptObserver`. A disk that takes no more costs the stream, not the attempt."""

    def __init__(
        self, attempt: CaseAttempt, run: StoredRun, folder: str, watcher: RunWatcher
    ) -> None:
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
        self._began, self._since = utc_now(), time.monotonic()

    def with_times(self, trace: Trace) -> Trace:
        """With times, where it tells none itself."""
        took = (time.monotonic() - self._since) * 1000
        return replace(
            trace,
            start_time=trace.start_time or self._began,
            end_time=trace.end_time or utc_now(),
            duration_ms=took if trace.duration_ms is None else trace.duration_ms,
        )

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        if number not in self._messages:
            self._order.append(number)
        if before is not None:
            self._order.remove(number)
            self._order.insert(self._order.index(before), number)
        self._messages[number] = message
        self._write(TraceLine(at=utc_now(), number=number, before=before, message=message))

    def permission_decided(self, decision: PermissionDecision) -> None:
        self._decisions.append(decision)
        self._write(TraceLine(at=utc_now(), decision=decision))

    def usage_changed(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        self._usage, self._cost_usd = usage, cost_usd
        self._write(TraceLine(at=utc_now(), usage=usage, cost_usd=cost_usd))

    def log_started(self, chosen: StreamLogFile) -> None:
        self._log_path = chosen.file_path
        self._write(TraceLine(at=utc_now(), log_path=chosen.file_path))
        self._watcher.log(chosen)

    def warn(self, text: str) -> None:
        self._watcher.warned(self._run.redact(text))

    def turn(self, turn: TracedTurn) -> None:
        """One of a conversation is over."""
        self._turns.append(turn)

    def partial_trace(self, failure: TargetFailure) -> Trace:
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

    def _write(self, told: TraceLine) -> None:
        if self._is_lost:
            return
        try:
            if self._file is None:
                self._file = self._open_stream()
            self._file.write(self._run.encode(told) + b"\n")
        except OSError as error:
            self._is_lost = True
            self._watcher.warned(f"{self._folder / STREAM_FILE}: not written on: {error.strerror}")

    def _open_stream(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = (self._folder / STREAM_FILE).open("ab", buffering=0)
        file.write(self._run.encode(TraceLine(at=utc_now(), attempt=self._attempt.number)) + b"\n")
        return file
