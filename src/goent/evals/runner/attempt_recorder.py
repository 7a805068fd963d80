"""Records an attempt on disk while it runs, and defines the port that watches a run."""

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
    """What a run is about to do. `total` counts the trials; `kept` of them exist already.

    `to_make` counts the others by target.
    """

    total: int
    kept: int
    targets: tuple[str, ...]
    out: Path
    to_make: Mapping[str, int] = {}


class RunWatcher(Protocol):
    """Gets the events of a run, in order; it must not block."""

    def planned(self, plan: RunPlan) -> None: ...

    def began(self, attempt: CaseAttempt) -> None: ...

    def log(self, chosen: StreamLogFile) -> None: ...

    def failed(
        self, attempt: CaseAttempt, failure: TargetFailure, *, again_in_s: float, by: str
    ) -> None:
        """The attempt failed and is retried, by the same target or the next fallback."""
        ...

    def ended(self, row: Row) -> None: ...

    def warned(self, text: str) -> None: ...


class TraceLine(Value, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `trace.jsonl`. The first has the attempt; a later message replaces one of the same number.

    A message with `before` belongs in front of the message of that number, others at the end.
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
    """Streams an attempt to disk. A full disk ends the stream, not the attempt."""

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
        """Starts the clock, once the attempt has its turn."""
        self._began, self._since = utc_now(), time.monotonic()

    def with_times(self, trace: Trace) -> Trace:
        """Adds times that the trace lacks."""
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
        self._turns.append(turn)

    def partial_trace(self, failure: TargetFailure) -> Trace:
        """The trace of a failed attempt, as far as it got."""
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

    def _write(self, line: TraceLine) -> None:
        if self._is_lost:
            return
        try:
            if self._file is None:
                self._file = self._open_stream()
            self._file.write(self._run.encode(line) + b"\n")
        except OSError as error:
            self._is_lost = True
            self._watcher.warned(
                f"{self._folder / STREAM_FILE}: the stream ends here: {error.strerror}"
            )

    def _open_stream(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        file = (self._folder / STREAM_FILE).open("ab", buffering=0)
        file.write(self._run.encode(TraceLine(at=utc_now(), attempt=self._attempt.number)) + b"\n")
        return file
