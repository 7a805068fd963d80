"""How is a recorded answer told again, so that graders can be tried without an agent?

A line of the fixtures is one recording: `test_id`, its answer under `output` or `text` as a command
gives it, and which `suite`, `source_target`, `attempt` and `variant` it is of, where it says so.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from goent.config.misfits import in_words
from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.ports import Attempt, TargetError, Witness
from goent.evals.suites import Case, TargetSpec
from goent.evals.targets.answers import read_answer
from goent.evals.targets.settings import home_of, settings_of
from goent.evals.traces import Trace
from goent.plain_files import LARGE, read_plain


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
            and (told.eval_path is None or _same(self.eval_path, told.eval_path))
        )


class _Line(Value, frozen=True, kw_only=True):
    number: int
    said: bytes
    recording: _Recording


class ReplayTarget:
    """The port `Target`, by a file of recordings. Raises one `ConfigError` for all that is wrong with it."""

    def __init__(self, spec: TargetSpec) -> None:
        told = settings_of(spec, ReplaySettings)
        self._path = home_of(spec) / told.fixtures
        self._recorded: dict[tuple[str, int | None], list[_Line]] = {}
        mistakes: list[str] = []
        for line in self._lines(mistakes):
            recording = line.recording
            if recording.is_of(told):
                others = self._recorded.setdefault((recording.test_id, recording.attempt), [])
                mistakes += self._doubled(line, others)
                others.append(line)
        if mistakes:
            raise ConfigError("\n".join(mistakes))

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
        line = self._line(attempt)
        where = f"{self._path}:{line.number}: {attempt.case.id!r}"
        return read_answer(line.said, warn=lambda why: witness.warn(f"{where}: {why}"))

    def _line(self, attempt: Attempt) -> _Line:
        for number in (attempt.number, None):
            lines = self._recorded.get((attempt.case.id, number), [])
            fitting = list(_for(attempt.case, lines)) or lines
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

    def _doubled(self, line: _Line, others: list[_Line]) -> Iterator[str]:
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

    def _lines(self, mistakes: list[str]) -> Iterator[_Line]:
        try:
            said = read_plain(self._path, LARGE).splitlines()
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be read: {error.strerror}") from None
        for number, line in enumerate(said, 1):
            if not line.strip():
                continue
            try:
                recording = msgspec.json.decode(line, type=_Recording)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                mistakes.append(f"{self._path}:{number}: no recording: {_why(error, line)}")
                continue
            if recording.answers:
                yield _Line(number=number, said=line, recording=recording)
            else:
                mistakes.append(f"{self._path}:{number}: no answer; write `output` or `text`")


def _why(error: Exception, line: bytes) -> str:
    if not isinstance(error, msgspec.ValidationError):
        return str(error)
    path, words = in_words(error, msgspec.json.decode(line))
    return f"{path.removeprefix('.')}: {words}" if path else words


def _for(case: Case, lines: list[_Line]) -> Iterator[_Line]:
    """Of several suites, that of the case; then of its file."""
    own = [line for line in lines if line.recording.suite in (None, case.suite)]
    at = str(Path(case.place.file).absolute())
    files = [line for line in own if _same(line.recording.eval_path, at)]
    yield from files or own


def _same(recorded: str | None, asked: str) -> bool:
    """A path in a recording may be seen from anywhere above the file."""
    if recorded is None:
        return False
    short, whole = (Path(path).as_posix() for path in (recorded, asked))
    return short == whole or (whole.startswith("/") and whole.endswith(f"/{short}"))
