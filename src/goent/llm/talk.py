"""What is said to a model, and what does it say, in neither dialect?

A request is a `ModelRequest`. An answer is a row of chunks, whether it came as a stream or whole:
text, reasoning and tool calls in pieces, `UsageTold` whenever more is known (the last one counts),
`Stopped` with the reason. `Broken` is an error that came where an answer was due.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Raw

from goent.domain.types import Usage, Value

Role = Literal["user", "assistant"]
StopReason = Literal["end", "tool_calls", "length", "refused"]


class Text(Value, frozen=True, kw_only=True):
    """Something said, by either side."""

    text: str


class Reasoning(Value, frozen=True, kw_only=True):
    """What a model thought. The signature is its vendor's proof; `redacted` is thought it hides."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class Image(Value, frozen=True, kw_only=True):
    """A picture: `data` is base64, or there is a `url`."""

    media_type: str = ""
    data: str = ""
    url: str = ""


class ToolUse(Value, frozen=True, kw_only=True):
    """A tool call that a model made; `arguments` is JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str = "{}"


class ToolResult(Value, frozen=True, kw_only=True):
    """What became of the tool call `id`."""

    id: str
    parts: tuple[Text | Image, ...] = ()
    is_error: bool = False


Part = Text | Reasoning | Image | ToolUse | ToolResult


class Message(Value, frozen=True, kw_only=True):
    """One side's turn to speak. Tool results belong to the user's side."""

    role: Role
    parts: tuple[Part, ...]


class Tool(Value, frozen=True, kw_only=True):
    """A tool that the model may call; `schema` is the JSON schema of its arguments."""

    name: str
    description: str = ""
    schema: Raw = Raw(b'{"type":"object","properties":{}}')


class OneTool(Value, frozen=True, kw_only=True):
    """A tool that the model has to call now."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | OneTool


class Thinking(Value, frozen=True, kw_only=True):
    """How Anthropic is asked to think: with a budget in tokens, or as much as it sees fit."""

    mode: Literal["enabled", "adaptive", "disabled"]
    budget: int | None = None


class JsonAnswer(Value, frozen=True, kw_only=True):
    """The answer has to be JSON: by the `schema`, or any object."""

    schema: Raw | None = None
    name: str = "answer"
    strict: bool | None = None


class ModelRequest(Value, frozen=True, kw_only=True):
    """What a model is asked. What is None is the provider's choice.

    `thinking` with `thinking_effort` is Anthropic's way to ask for reasoning, `reasoning_effort`
    is OpenAI's. Neither is translated: which of them a model refuses is not in its name. `others` are
    further fields, as OpenAI's dialect writes them; no other has a place for them.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[Tool, ...] = ()
    tool_choice: ToolChoice | None = None
    parallel_tools: bool = True
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: tuple[str, ...] = ()
    stream: bool = True
    tell_usage: bool = True  # an OpenAI stream tells its usage only to those who ask
    reasoning_effort: str | None = None
    thinking: Thinking | None = None
    thinking_effort: str | None = None
    json_answer: JsonAnswer | None = None
    others: tuple[tuple[str, Raw], ...] = ()


class TextPiece(Value, frozen=True, kw_only=True):
    """The next piece of the answer's text."""

    text: str


class ReasoningPiece(Value, frozen=True, kw_only=True):
    """The next piece of the model's reasoning, or the signature that ends a stretch of it."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class ToolPiece(Value, frozen=True, kw_only=True):
    """A piece of tool call number `index`, counted from 0. Id and name come once, perhaps late."""

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


class UsageTold(Value, frozen=True, kw_only=True):
    """All tokens so far, by the provider's count."""

    usage: Usage


class Stopped(Value, frozen=True, kw_only=True):
    """Why the model stopped."""

    reason: StopReason


class Broken(Value, frozen=True, kw_only=True):
    """An error in place of the rest; `kind` is the vendor's word for it, if it has one."""

    message: str
    kind: str = ""


Chunk = TextPiece | ReasoningPiece | ToolPiece | UsageTold | Stopped | Broken


def merged(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The same talk, with the two sides taking turns: neighbours of one side become one."""
    turns: list[Message] = []
    for message in messages:
        if turns and turns[-1].role == message.role:
            turns[-1] = Message(role=message.role, parts=(*turns[-1].parts, *message.parts))
        else:
            turns.append(message)
    return tuple(turns)
