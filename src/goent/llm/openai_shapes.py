"""Which shape has a request for Chat Completions on the wire?"""

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType


class ImageUrl(Struct):
    """A picture's address; `data:` holds the picture itself."""

    url: str


class Part(Struct, omit_defaults=True):
    """A part of a message."""

    type: str
    text: str | None = None
    image_url: ImageUrl | str | None = None


class Function(Struct):
    """What a call calls, and with what."""

    name: str | None = None
    arguments: Raw = Raw(b'""')  # a text; a few clients send the object itself


class Call(Struct):
    """A tool call."""

    id: str | None = None
    type: str | None = "function"
    function: Function = msgspec.field(default_factory=Function)


class Message(Struct, omit_defaults=True):
    """One message of any role."""

    role: str
    content: str | list[Part] | UnsetType | None = UNSET
    reasoning_content: str | None = None
    reasoning: str | dict[str, Raw] | None = None
    tool_calls: list[Call] | None = None
    tool_call_id: str | None = None


class ToolFunction(Struct, omit_defaults=True):
    """A tool's name, words and schema."""

    name: str
    description: str | None = None
    parameters: Raw = Raw()


class Tool(Struct):
    """A tool."""

    type: str = "function"
    function: ToolFunction | None = None


class ChosenFunction(Struct):
    """The tool that has to be called."""

    name: str


class Choice(Struct):
    """The choice of one tool."""

    type: str = "function"
    function: ChosenFunction | None = None


class StreamOptions(Struct):
    """Whether the stream tells its usage."""

    include_usage: bool | None = None


class JsonSchema(Struct, omit_defaults=True):
    """The form of an answer in JSON."""

    name: str = ""
    schema: Raw = Raw()
    strict: bool | None = None


class ResponseFormat(Struct, omit_defaults=True):
    """Whether the answer has to be JSON."""

    type: str
    json_schema: JsonSchema | None = None


class Request(Struct, omit_defaults=True):
    """What is asked."""

    model: str
    messages: list[Message]
    tools: list[Tool] | None = None
    tool_choice: str | Choice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    reasoning_effort: str | None = None
    response_format: ResponseFormat | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
