"""Which step answers a request, and with which words?"""

import msgspec

from goent.domain.types import Value
from goent.testing.conversation import Conversation, ToolCall
from goent.testing.script import Case, ScriptedProvider, Step, ToolUse
from goent.testing.wire import Refused, Reply, Wire


class Cue(Value, frozen=True, kw_only=True):
    """The place in the script: the case, the number of the step in it, and the step."""

    case: Case
    number: int
    step: Step


def admit(provider: ScriptedProvider, key: str | None, conversation: Conversation) -> None:
    """Demand the key and a known model, as the vendor would."""
    if provider.key is not None and key != provider.key:
        raise Refused(401, f"the key {key!r} is not the one in the script")
    if conversation.model not in provider.models:
        known = ", ".join(provider.models)
        raise Refused(404, f"the model {conversation.model!r} does not exist; known: {known}")


def find_cue(provider: ScriptedProvider, conversation: Conversation) -> Cue:
    """Find the step. A script that has none is refused with 400, which no client retries."""
    prompt = conversation.prompt
    case = next((c for c in provider.cases if c.when is None or c.when in prompt), None)
    if case is None:
        raise Refused(400, f"the script has no case for {prompt[:200]!r}")
    number = min(conversation.step, len(case.steps) - 1) if case.repeat else conversation.step
    if number >= len(case.steps):
        raise Refused(400, f"the script has no step {number} in its case {case.when!r}")
    return Cue(case=case, number=number, step=case.steps[number])


def compose(step: Step, conversation: Conversation, *, n: int, wire: Wire) -> Reply:
    """Fill the step in. An answer that the client has begun to tell is continued from there."""
    places = {"n": str(n), "model": conversation.model, "prompt": conversation.prompt}
    if conversation.cwd is not None:
        places["cwd"] = conversation.cwd
    say = _filled(step.say, places)
    prefill = conversation.prefill
    return Reply(
        n=n,
        model=conversation.model,
        say=say.removeprefix(prefill),
        think="" if prefill else _filled(step.think, places),
        tools=tuple(
            ToolCall(id=f"{wire.tool_id}_{n}_{i}", name=use.tool, arguments=_arguments(use, places))
            for i, use in enumerate(step.tools)
        ),
        stop=step.finish,
        usage=wire.billable(step.usage),
        chunk=step.chunk,
        stream_usage=conversation.stream_usage,
    )


def _arguments(use: ToolUse, places: dict[str, str]) -> str:
    escaped = {name: msgspec.json.encode(value).decode()[1:-1] for name, value in places.items()}
    return _filled(msgspec.json.encode(use.input).decode(), escaped)


def _filled(text: str, places: dict[str, str]) -> str:
    if "{cwd}" in text and "cwd" not in places:
        raise Refused(400, "the script wants {cwd}, but the system prompt names no such directory")
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", value)
    return text
