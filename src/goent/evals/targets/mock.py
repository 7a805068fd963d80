"""What answers without anybody being asked? A fixed answer, for trying out suites and graders."""

import random
from collections.abc import Iterator, Mapping
from typing import Annotated

import anyio
from msgspec import Meta

from goent.domain.types import Value
from goent.evals.ports import Attempt, Witness
from goent.evals.suites import TargetSpec
from goent.evals.targets.answers import Warn, read_fixture
from goent.evals.targets.settings import misfits, settings_of
from goent.evals.traces import Trace

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
    yield from misfits(settings, MockSettings)
    least, most = (settings.get(key) for key in ("delay_min_ms", "delay_max_ms"))
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        yield "delay_max_ms", f"must be at least delay_min_ms, {least:g}, not {most:g}"


class MockTarget:
    """The port `Target`, by a fixed answer."""

    def __init__(self, spec: TargetSpec) -> None:
        told = settings_of(spec, MockSettings)
        least = told.delay_ms if told.delay_min_ms is None else told.delay_min_ms
        self._delay_ms = (least, max(least, told.delay_max_ms or 0))
        self._warnings: list[str] = []
        self._trace = _trace(told, self._warnings.append)

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
        await anyio.sleep(random.uniform(*self._delay_ms) / 1000)  # noqa: S311 (no secret)
        while self._warnings:  # once, for it answers the same each time
            witness.warn(f"{attempt.target!r}: {self._warnings.pop()}")
        return self._trace


def _trace(told: MockSettings, warn: Warn) -> Trace:
    if not told.trace:
        return read_fixture(told.response, warn)
    spoken = {"role": "assistant", "content": told.response}
    return read_fixture({"output": [*told.trace, spoken]}, warn)
