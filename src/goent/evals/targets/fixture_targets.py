"""Answers cases with a fixed or recorded answer, so that graders can be tried without an agent.

A line of the fixtures is one recording: `test_id`, its answer under `output` or `text` as a command
gives it, and which `suite`, `source_target`, `attempt` and `variant` it is of, where it says so.
"""

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
from msgspec import Meta

from goent.domain.errors import ConfigError
from goent.domain.input_mistakes import KEYS, explain_undecodable
from goent.domain.types import Value
from goent.evals.eval_ports import AttemptObserver, CaseAttempt, TargetError
from goent.evals.suites import EvalCase, TargetSpec
from goent.evals.targets.command_target import Warn, read_answer, read_fixture
from goent.evals.targets.target_settings import (
    read_target_settings,
    settings_mistakes,
    target_folder,
)
from goent.evals.traces import Trace
from goent.system.plain_files import LARGE_FILE, read_plain

Milliseconds = Annotated[float, Meta(ge=0)]


class MockSettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`response` is text or an answer as a command gives it; `trace` are the messages before it.

    `delay_ms` passes first, or something between `delay_min_ms` and `delay_max_ms`. AgentV has an answer of its own
    where there is none, too.
    """

    response: str | Mapping[str, object] = "mock"
    trace: tuple[Mapping[str, object], ...] = ()
    delay_ms: Milliseconds = 0
    delay_min_ms: Milliseconds | None = None
    delay_max_ms: Milliseconds | None = None


def mock_mistakes(settings: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """What is wrong with the settings of such a target: paths and words."""
    yield from settings_mistakes(settings, MockSettings)
    least, most = (settings.get(key) for key in ("delay_min_ms", "delay_max_ms"))
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        yield "delay_max_ms", f"must be at least delay_min_ms, {least:g}, not {most:g}"


class MockTarget:
    """The port `Target`, by a fixed answer."""

    def __init__(self, spec: TargetSpec) -> None:
        told = read_target_settings(spec, MockSettings)
        least = told.delay_ms if told.delay_min_ms is None else told.delay_min_ms
        self._delay_ms = (least, max(least, told.delay_max_ms or 0))
        self._warnings: list[str] = []
        self._trace = _mock_trace(told, self._warnings.append)

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        await anyio.sleep(random.uniform(*self._delay_ms) / 1000)  # noqa: S311 (no secret)
        while self._warnings:  # once, for it answers the same each time
            witness.warn(f"{attempt.target!r}: {self._warnings.pop()}")
        return self._trace


def _mock_trace(told: MockSettings, warn: Warn) -> Trace:
    if not told.trace:
        return read_fixture(told.response, warn)
    spoken = {"role": "assistant", "content": told.response}
    return read_fixture({"output": [*told.trace, spoken]}, warn)


class ReplaySettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`fixtures` is a JSONL file, seen from the folder that holds `.goent`. The others choose among its lines."""

    fixtures: str
    source_target: str | None = None
    suite: str | None = None
    eval_path: str | None = None
    variant: str | None = None


class _Recording(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line, as AgentV writes it; `text`, `output_messages` and `file_changes` are a command's."""

    test_id: str
    suite: str | None = None
    source_target: str | None = None
    eval_path: str | None = None
    attempt: int | None = None  # of any
    variant: str | None = None
    text: str | None = None
    output: object = None
    output_messages: object = None
    token_usage: object = None
    cost_usd: float | None = None
    duration_ms: float | None = None
    start_time: str | None = None
    end_time: str | None = None
    file_changes: str | None = None
    # Of no consequence here.
    schema_version: object = None
    fixture_id: object = None
    recorded_at: object = None
    source: object = None
    redaction: object = None
    transcript: object = None

    @property
    def answers(self) -> bool:
        return not (self.text is None and self.output is None and self.output_messages is None)

    def is_of(self, told: ReplaySettings) -> bool:
        return (
            told.source_target in (None, self.source_target)
            and told.suite in (None, self.suite)
            and told.variant in (None, self.variant)
            and (told.eval_path is None or _same_path(self.eval_path, told.eval_path))
        )


class _RecordingLine(Value, frozen=True, kw_only=True):
    number: int
    said: bytes
    recording: _Recording


class ReplayTarget:
    """The port `Target`, by a file of recordings. Raises one `ConfigError` for all that is wrong with it."""

    def __init__(self, spec: TargetSpec) -> None:
        told = read_target_settings(spec, ReplaySettings)
        self._path = target_folder(spec) / told.fixtures
        self._recordings: dict[tuple[str, int | None], list[_RecordingLine]] = {}
        mistakes: list[str] = []
        for line in self._lines(mistakes):
            recording = line.recording
            if recording.is_of(told):
                others = self._recordings.setdefault((recording.test_id, recording.attempt), [])
                mistakes += self._duplicate_mistakes(line, others)
                others.append(line)
        if mistakes:
            raise ConfigError("\n".join(mistakes))

    async def invoke(self, attempt: CaseAttempt, witness: AttemptObserver) -> Trace:
        line = self._line(attempt)
        where = f"{self._path}:{line.number}: {attempt.case.id!r}"
        return read_answer(line.said, warn=lambda why: witness.warn(f"{where}: {why}"))

    def _line(self, attempt: CaseAttempt) -> _RecordingLine:
        for number in (attempt.number, None):
            lines = self._recordings.get((attempt.case.id, number), [])
            fitting = list(_recordings_of(attempt.case, lines)) or lines
            if len(fitting) == 1:
                return fitting[0]
            if fitting:
                numbers = " and ".join(str(line.number) for line in fitting)
                raise TargetError(
                    "no_recording",
                    f"{self._path}: lines {numbers} are recordings of {attempt.case.id!r} in other "
                    "suites: choose one by `suite` or `eval_path`",
                )
        raise TargetError(
            "no_recording",
            f"{self._path} has no recording of {attempt.case.id!r}, attempt {attempt.number}",
        )

    def _duplicate_mistakes(
        self, line: _RecordingLine, others: list[_RecordingLine]
    ) -> Iterator[str]:
        """The same case of the same suite, once more."""
        new = line.recording
        for other in others:
            old = other.recording
            if (old.suite, old.eval_path) == (new.suite, new.eval_path):
                yield (
                    f"{self._path}:{line.number}: line {other.number} is a recording of "
                    f"{new.test_id!r} as well; keep one, or choose by `source_target` or `variant`"
                )
                return

    def _lines(self, mistakes: list[str]) -> Iterator[_RecordingLine]:
        try:
            said = read_plain(self._path, LARGE_FILE).splitlines()
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be read: {error.strerror}") from None
        for number, line in enumerate(said, 1):
            if not line.strip():
                continue
            try:
                recording = msgspec.json.decode(line, type=_Recording)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                why = explain_undecodable(error, line, _Recording, KEYS)
                mistakes.append(f"{self._path}:{number}: no recording: {why}")
                continue
            if recording.answers:
                yield _RecordingLine(number=number, said=line, recording=recording)
            else:
                mistakes.append(f"{self._path}:{number}: no answer; write `output` or `text`")


def _recordings_of(case: EvalCase, lines: list[_RecordingLine]) -> Iterator[_RecordingLine]:
    """Of several suites, that of the case; then of its file."""
    own = [line for line in lines if line.recording.suite in (None, case.suite)]
    at = str(Path(case.place.file).absolute())
    files = [line for line in own if _same_path(line.recording.eval_path, at)]
    yield from files or own


def _same_path(recorded: str | None, asked: str) -> bool:
    """A path in a recording may be seen from anywhere above the file."""
    if recorded is None:
        return False
    short, whole = (Path(path).as_posix() for path in (recorded, asked))
    return short == whole or (whole.startswith("/") and whole.endswith(f"/{short}"))
