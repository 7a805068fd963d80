"""The options of a model in `opencode.json`, as OpenCode's packages send them.

OpenCode sends them itself; this is for calls that go-ent makes without it. What a call says for
itself goes before them.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from goent.domain.types import Dialect
from goent.llm.talk import ModelRequest, Thinking

# The package for OpenAI's dialect renames these, keeps the last for itself, and passes on the rest.
_RENAMED: Final[Mapping[str, str]] = {
    "reasoningEffort": "reasoning_effort",
    "textVerbosity": "verbosity",
}
_KEPT_BACK: Final = "strictJsonSchema"


class _Thinking(Struct):
    type: str = ""
    budget: int | None = msgspec.field(default=None, name="budgetTokens")


class _ForAnthropic(Struct):
    thinking: _Thinking | None = None
    effort: str | None = None


def with_options(request: ModelRequest, dialect: Dialect, options: bytes) -> ModelRequest:
    """`options` is a JSON object, or nothing."""
    if not options:
        return request
    try:
        if dialect == "anthropic":
            return _for_anthropic(request, msgspec.json.decode(options, type=_ForAnthropic))
        told = msgspec.json.decode(options, type=dict[str, Raw])
    except msgspec.DecodeError:
        return request  # the package that it was written for would not know what to do with it
    others = {_RENAMED.get(key, key): raw.copy() for key, raw in told.items() if key != _KEPT_BACK}
    return replace(request, others=tuple({**others, **dict(request.others)}.items()))


def _for_anthropic(request: ModelRequest, told: _ForAnthropic) -> ModelRequest:
    match told.thinking:
        case _Thinking(type="enabled" | "adaptive" | "disabled" as mode, budget=budget):
            thinking = request.thinking or Thinking(mode=mode, budget=budget)
        case _:
            thinking = request.thinking
    effort = request.thinking_effort or told.effort
    return replace(request, thinking=thinking, thinking_effort=effort)
