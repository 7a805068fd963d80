"""What does Anthropic refuse that other vendors take, and what is said to it instead?"""

import hashlib
import re

import msgspec
from msgspec import Raw

from goent.llm.talk import Message, ModelRequest, Part, Reasoning, Text, ToolResult, merged

MAX_TOKENS = 8192  # it demands a limit; every model of today can go as far as this
GO_ON = "Go on."  # somebody else has to speak first

_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_IN_IDS = re.compile(r"[^a-zA-Z0-9_-]")


def safe_id(call_id: str) -> str:
    """The id itself if it may be one; else one that is always the same for it, and only for it."""
    if _ID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{_NOT_IN_IDS.sub('_', call_id)[:47]}_{digest}"


def as_object(arguments: str) -> Raw:
    """A tool call's arguments, which have to be an object even if the model got them wrong."""
    encoded = arguments.encode(errors="replace")
    try:
        msgspec.json.decode(encoded, type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError):
        # Half a call, or a bare value: kept as it was, where the model can see its mistake.
        return Raw(msgspec.json.encode({"arguments": arguments} if arguments.strip() else {}))
    return Raw(encoded)


def most_tokens(request: ModelRequest) -> int:
    """The limit that was given; a budget for thinking is part of it and has to leave room."""
    if request.max_tokens:
        return request.max_tokens
    budget = request.thinking.budget if request.thinking else None
    return MAX_TOKENS + (budget or 0)


def may_think(request: ModelRequest) -> bool:
    """Whether thinking can be asked for: not in the middle of a turn that began without it."""
    thinking = request.thinking
    if thinking is None or thinking.mode == "disabled":
        return True
    forced = request.tool_choice not in (None, "auto", "none")
    cramped = (thinking.budget or 0) >= most_tokens(request)
    turns = talk_that_it_takes(request.messages)
    return not (forced or cramped) and turns[-1].role == "user" and _thought_before(turns)


def _thought_before(turns: tuple[Message, ...]) -> bool:
    """A tool's result can be thought about only if the call came with its signed thoughts."""
    if not any(isinstance(part, ToolResult) for part in turns[-1].parts):
        return True
    return any(isinstance(part, Reasoning) for before in turns[-2:-1] for part in before.parts[:1])


def talk_that_it_takes(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Sides that take turns, the user first; nothing empty; results first, and thoughts signed."""
    kept = (
        Message(role=message.role, parts=tuple(filter(_may_stay, message.parts)))
        for message in messages
    )
    turns = list(merged(message for message in kept if message.parts))
    if not turns or turns[0].role == "assistant":
        turns.insert(0, Message(role="user", parts=(Text(text=GO_ON),)))
    if turns[-1].role == "assistant":
        turns[-1] = _without_last_blanks(turns[-1])
    return tuple(_results_first(turn) for turn in turns)


def _may_stay(part: Part) -> bool:
    match part:
        case Text(text=text):
            return bool(text.strip())
        case Reasoning(signature=signature, redacted=redacted):
            return bool(signature or redacted)
        case _:
            return True


def _results_first(turn: Message) -> Message:
    ordered = sorted(turn.parts, key=lambda part: not isinstance(part, ToolResult))
    return Message(role=turn.role, parts=tuple(ordered))


def _without_last_blanks(turn: Message) -> Message:
    """The beginning of an answer that the model is to continue may not end in a blank."""
    *others, last = turn.parts
    if isinstance(last, Text):
        return Message(role=turn.role, parts=(*others, Text(text=last.text.rstrip())))
    return turn
