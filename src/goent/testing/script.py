"""Scripts for fake models, as values or as a YAML file: cases, steps and faults.

The last user message chooses the case, and the number of answers since then the step. The server
keeps no state between requests, except how often a fault has occurred, so any number of workers can
use one script in parallel.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

import msgspec
import yaml
from msgspec import Meta

from goent.domain.errors import ConfigError
from goent.domain.input_mistakes import KEYS, explain_mistake
from goent.domain.types import Dialect, Usage, Value

FaultKind = Literal["status", "hang", "cut", "eof", "error", "malformed", "garbage", "mislabeled"]
FinishReason = Literal["stop", "tool_calls", "length", "content_filter"]
Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(ge=0)]

SMALL_USAGE = Usage(input=100, output=20)


class Fault(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A failure instead of, or in the middle of, a step's answer.

    status      an HTTP error in the vendor's shape
    hang        silence until the client leaves
    cut         the socket is reset
    eof         a clean end without a finish reason
    error       the vendor's error inside a stream that began well
    malformed   broken JSON inside a stream that began well
    garbage     a web page with status 200
    mislabeled  the whole answer, called text/html

    It occurs after `after` pieces of content, at the latest before the finish; without `after`,
    before the headers. It occurs `times` times per session before the step itself answers;
    without `times`, always.
    """

    kind: FaultKind = "status"
    status: Annotated[int, Meta(ge=300, le=599)] = 500
    message: str = "scripted failure"
    code: str | None = None
    retry_after: Seconds | None = None
    after: Count | None = None
    times: Positive | None = None


class ScriptedToolUse(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call that the model makes."""

    tool: str
    input: dict[str, object] = msgspec.field(default_factory=dict)


class Step(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One answer of the model. `{cwd}`, `{n}`, `{model}` and `{prompt}` are filled in.

    The first byte waits for `delay` and for the test to open `gate`; `pace` passes between pieces
    of `chunk` characters. A dialect may not have a field for every part of the usage.
    """

    say: str = ""
    think: str = ""
    call: ScriptedToolUse | None = None
    calls: tuple[ScriptedToolUse, ...] = ()
    usage: Usage = SMALL_USAGE
    stop: FinishReason | None = None
    delay: Seconds = 0
    pace: Seconds = 0
    chunk: Positive = 16
    gate: str | None = None
    fault: Fault | None = None

    @property
    def tools(self) -> tuple[ScriptedToolUse, ...]:
        return self.calls if self.call is None else (self.call, *self.calls)

    @property
    def finish(self) -> FinishReason:
        return self.stop or ("tool_calls" if self.tools else "stop")

    def having(self, **changes: object) -> Self:
        """The same step with some fields changed: `call("bash", …).having(gate="door")`."""
        return msgspec.structs.replace(self, **changes)


class Case(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The steps for prompts that contain `when`, or for all. `repeat` repeats the last step."""

    steps: Annotated[tuple[Step, ...], Meta(min_length=1)]
    when: str | None = None
    repeat: bool = False


class ScriptedCost(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """USD per million tokens, for OpenCode's configuration."""

    input: float = 1.0
    output: float = 2.0
    cache_read: float = 0.1
    cache_write: float = 1.25


class ScriptedRateWindow(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rate limit as the vendor's headers state it; `reset` is in seconds from now."""

    limit: Count
    remaining: Count
    reset: Seconds = 1.0


class ScriptedRateLimits(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rate limits in the headers of every answered call."""

    requests: ScriptedRateWindow | None = None
    tokens: ScriptedRateWindow | None = None


class ScriptedProvider(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A vendor: its dialect, the key it requires (None: any), its models and cases."""

    cases: tuple[Case, ...]
    dialect: Dialect = "openai"
    key: str | None = None
    models: Annotated[tuple[str, ...], Meta(min_length=1)] = ("scripted",)
    cost: ScriptedCost = ScriptedCost()
    context: Positive = 128_000
    output: Positive = 8_192
    limits: ScriptedRateLimits = ScriptedRateLimits()


class Script(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All vendors of one server, by the name in their address."""

    providers: dict[str, ScriptedProvider]


def load_script(path: Path) -> Script:
    """Read a script from YAML; an unknown key is an error."""
    try:
        document: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the script {str(path)!r}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{str(path)!r} is not a script: {error}") from error
    try:
        return msgspec.convert(document, Script)
    except msgspec.ValidationError as error:
        mistake = explain_mistake(error, document, Script, KEYS)
        raise ConfigError(f"{str(path)!r} is not a script: {mistake}") from error


def say(text: str, *, think: str = "", usage: Usage = SMALL_USAGE) -> Step:
    """Say a text and end the turn."""
    return Step(say=text, think=think, usage=usage)


def call(tool: str, /, **tool_input: object) -> Step:
    """Call one tool: `call("write", filePath="{cwd}/a.txt", content="hi")`."""
    return Step(call=ScriptedToolUse(tool=tool, input=tool_input))


def fail(what: int | FaultKind, *, after: int | None = None, times: int | None = None) -> Step:
    """Fail with an HTTP status or by another kind of `Fault`."""
    if isinstance(what, int):
        return Step(fault=Fault(status=what, times=times))
    return Step(fault=Fault(kind=what, after=after, times=times))


def case(when: str | None, *steps: Step) -> Case:
    """Answer a prompt that contains `when` with these steps."""
    return Case(when=when, steps=steps)


def openai(
    *cases: Case, models: tuple[str, ...] = ("glm-4",), key: str | None = None
) -> ScriptedProvider:
    """A vendor that speaks OpenAI Chat Completions."""
    return ScriptedProvider(dialect="openai", cases=cases, models=models, key=key)


def anthropic(
    *cases: Case, models: tuple[str, ...] = ("claude-x",), key: str | None = None
) -> ScriptedProvider:
    """A vendor that speaks Anthropic Messages."""
    return ScriptedProvider(dialect="anthropic", cases=cases, models=models, key=key)
