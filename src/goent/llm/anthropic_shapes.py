"""Which shape has a request for Messages on the wire?"""

from msgspec import Raw, Struct


class Mark(Struct):
    """Up to here the prompt may be cached."""

    type: str = "ephemeral"


class Source(Struct, omit_defaults=True):
    """Where a picture or a document comes from."""

    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""


class Block(Struct, omit_defaults=True):
    """A part of a message; `type` says which of the fields it has."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    source: Source | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()
    tool_use_id: str | None = None
    content: Raw = Raw()  # of a tool's result; other blocks have other things under this name
    is_error: bool | None = None
    cache_control: Mark | None = None


class Message(Struct):
    """One side's turn."""

    role: str
    content: str | list[Block]


class Tool(Struct, omit_defaults=True):
    """A tool; those that run at the vendor's have a `type` and no schema."""

    name: str = ""
    description: str | None = None
    input_schema: Raw = Raw()
    type: str | None = None
    cache_control: Mark | None = None


class Choice(Struct, omit_defaults=True):
    """Whether a tool is to be called, and which."""

    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Struct, omit_defaults=True):
    """Whether and how much to think."""

    type: str
    budget_tokens: int | None = None


class Format(Struct):
    """The form of an answer in JSON."""

    type: str
    schema: Raw = Raw()


class Output(Struct, omit_defaults=True):
    """How much effort to make, and which form the answer has to have."""

    effort: str | None = None
    format: Format | None = None


class Request(Struct, omit_defaults=True):
    """What is asked. `max_tokens` is demanded by the vendor, not by all who speak its dialect."""

    model: str
    messages: list[Message]
    max_tokens: int | None = None
    system: str | list[Block] | None = None
    tools: list[Tool] | None = None
    tool_choice: Choice | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: list[str] | None = None
    thinking: Thinking | None = None
    output_config: Output | None = None
    stream: bool | None = None
