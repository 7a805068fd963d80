"""How is a recorded answer told again, so that graders can be tried without an agent?

A line of the fixtures is one recording: `test_id`, its answer under `output` or `text` as a command
gives it, and which `suite`, `source_target`, `attempt` and `variant` it is of, where it says so.
"""

import msgspec

from goent.domain.errors import ConfigError
from goent.domain.types import Value
from goent.evals.ports import Attempt, TargetError, Witness
from goent.evals.suites import TargetSpec
from goent.evals.targets.answers import read_answer
from goent.evals.targets.settings import home_of, settings_of
from goent.evals.traces import Trace


class ReplaySettings(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`fixtures` is a JSONL file, seen from the folder that holds `.goent`."""

    fixtures: str
    source_target: str | None = None
    suite: str | None = None
    variant: str | None = None


class _Recording(Value, frozen=True, kw_only=True):
    test_id: str
    suite: str | None = None
    source_target: str | None = None
    attempt: int | None = None  # of any
    variant: str | None = None


class ReplayTarget:
    """The port `Target`, by a file of recordings."""

    def __init__(self, spec: TargetSpec) -> None:
        told = settings_of(spec, ReplaySettings)
        self._path = home_of(spec) / told.fixtures
        self._recorded: dict[tuple[str, int | None], bytes] = {}
        for number, line in enumerate(self._lines(), 1):
            if not line.strip():
                continue
            try:
                recording = msgspec.json.decode(line, type=_Recording)
            except msgspec.DecodeError as error:
                raise ConfigError(f"{self._path}:{number}: no recording: {error}") from None
            wanted = ("source_target", "suite", "variant")
            if all(getattr(told, n) in (None, getattr(recording, n)) for n in wanted):
                self._recorded[recording.test_id, recording.attempt] = line

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
        ways = ((attempt.case.id, number) for number in (attempt.number, None))
        line = next((self._recorded[way] for way in ways if way in self._recorded), None)
        if line is None:
            raise TargetError(
                "no_recording",
                f"{self._path} has no recording of {attempt.case.id!r}, attempt {attempt.number}",
            )
        return read_answer(
            line, warn=lambda why: witness.warn(f"{self._path}: {attempt.case.id!r}: {why}")
        )

    def _lines(self) -> list[bytes]:
        try:
            return self._path.read_bytes().splitlines()
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be read: {error.strerror}") from None
