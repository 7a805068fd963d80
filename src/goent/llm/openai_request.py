"""How is a model asked in OpenAI's dialect? Requests for Chat Completions, both ways."""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goent.domain.errors import RequestError
from goent.llm.talk import (
    Image,
    Message,
    ModelRequest,
    OneTool,
    Part,
    Reasoning,
    Text,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
    merged,
)

# OpenAI's reasoning models refuse `max_tokens`; many other vendors know nothing else.
_COMPLETION_TOKENS = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])")
_DATA_URL = re.compile(r"data:([^;,]*)[^,]*;base64,", re.IGNORECASE)
_SYSTEM = frozenset({"system", "developer"})


class _ImageUrl(Struct):
    url: str


class _Part(Struct, omit_defaults=True):
    type: str
    text: str | None = None
    image_url: _ImageUrl | str | None = None


class _Function(Struct):
    name: str = ""
    arguments: Raw = Raw(b'""')  # a text; a few clients send the object itself


class _Call(Struct):
    id: str = ""
    type: str = "function"
    function: _Function = msgspec.field(default_factory=_Function)


class _Message(Struct, omit_defaults=True):
    role: str
    content: str | list[_Part] | UnsetType | None = UNSET
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None


class _ToolFunction(Struct, omit_defaults=True):
    name: str
    description: str | None = None
    parameters: Raw = Raw()


class _Tool(Struct):
    type: str = "function"
    function: _ToolFunction | None = None


class _ChosenFunction(Struct):
    name: str


class _Choice(Struct):
    type: str = "function"
    function: _ChosenFunction | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _Request(Struct, omit_defaults=True):
    model: str
    messages: list[_Message]
    tools: list[_Tool] | None = None
    tool_choice: str | _Choice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    reasoning_effort: str | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None


_decode = msgspec.json.Decoder(_Request).decode


def decode(body: bytes) -> ModelRequest:
    try:
        asked = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"this is no Chat Completions request: {error}") from error
    stop = asked.stop or ()
    options = asked.stream_options
    return ModelRequest(
        model=asked.model,
        messages=_talk(asked.messages),
        system="\n\n".join(_system(asked.messages)),
        tools=tuple(_tools(asked.tools or ())),
        tool_choice=_choice(asked.tool_choice),
        parallel_tools=asked.parallel_tool_calls is not False,
        max_tokens=asked.max_completion_tokens or asked.max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stream=bool(asked.stream),
        tell_usage=bool(options and options.include_usage),
        reasoning_effort=asked.reasoning_effort,
    )


def encode(request: ModelRequest) -> bytes:
    system = [_Message(role="system", content=request.system)] if request.system else []
    limit = "max_completion_tokens" if _COMPLETION_TOKENS.search(request.model) else "max_tokens"
    choice = request.tool_choice
    return msgspec.json.encode(
        msgspec.structs.replace(
            _Request(
                model=request.model,
                messages=[
                    *system,
                    *(m for said in merged(request.messages) for m in _messages(said)),
                ],
                tools=[_tool(tool) for tool in request.tools] or None,
                tool_choice=(
                    _Choice(function=_ChosenFunction(name=choice.name))
                    if isinstance(choice, OneTool)
                    else choice
                ),
                parallel_tool_calls=None if request.parallel_tools else False,
                temperature=request.temperature,
                top_p=request.top_p,
                stop=list(request.stop) or None,
                reasoning_effort=request.reasoning_effort,
                stream=request.stream,
                stream_options=_StreamOptions(include_usage=True) if request.stream else None,
            ),
            **{limit: request.max_tokens},
        )
    )


def arguments_text(raw: Raw) -> str:
    """A tool call's arguments as text, also where somebody wrote the object itself."""
    told = bytes(raw)
    if told.startswith(b'"'):
        return msgspec.json.decode(told, type=str)
    return "" if told == b"null" else told.decode()


# What comes in


def _system(messages: Iterable[_Message]) -> Iterator[str]:
    """From wherever they stand: elsewhere than in front, other vendors have no place for them."""
    for message in messages:
        if message.role in _SYSTEM and (text := _joined(_parts(message))):
            yield text


def _talk(messages: Iterable[_Message]) -> tuple[Message, ...]:
    said = (_message(message) for message in messages if message.role not in _SYSTEM)
    return merged(message for message in said if message.parts)


def _message(message: _Message) -> Message:
    parts = _parts(message)
    if message.role == "tool":
        result = ToolResult(id=message.tool_call_id or "", parts=tuple(parts))
        return Message(role="user", parts=(result,))
    if message.role != "assistant":
        return Message(role="user", parts=tuple(parts))
    thought = message.reasoning_content or message.reasoning
    return Message(
        role="assistant",
        parts=(
            *((Reasoning(text=thought),) if thought else ()),
            *parts,
            *(
                ToolUse(
                    id=call.id,
                    name=call.function.name,
                    arguments=arguments_text(call.function.arguments) or "{}",
                )
                for call in message.tool_calls or ()
                if call.function.name
            ),
        ),
    )


def _parts(message: _Message) -> list[Text | Image]:
    content = message.content or ()
    if isinstance(content, str):
        return [Text(text=content)]
    return [found for part in content if (found := _part(part, message.role))]


def _part(part: _Part, role: str) -> Text | Image | None:
    if part.image_url:
        return _image(part.image_url if isinstance(part.image_url, str) else part.image_url.url)
    if part.text is not None:
        return Text(text=part.text) if part.text else None
    # The model is told that it does not see everything. Its own words are not meddled with.
    return None if role == "assistant" else Text(text=f"[{part.type}: left out]")


def _image(url: str) -> Image:
    if inline := _DATA_URL.match(url):
        return Image(media_type=inline[1] or "image/png", data=url[inline.end() :])
    return Image(url=url)


def _tools(tools: Iterable[_Tool]) -> Iterator[Tool]:
    for tool in tools:
        if function := tool.function:
            description = function.description or ""
            if bytes(function.parameters) in {b"", b"null"}:
                yield Tool(name=function.name, description=description)
            else:
                schema = function.parameters.copy()
                yield Tool(name=function.name, description=description, schema=schema)


def _choice(choice: str | _Choice | None) -> ToolChoice | None:
    if isinstance(choice, _Choice):
        return OneTool(name=choice.function.name) if choice.function else None
    return choice if choice in ("auto", "none", "required") else None


# What goes out


def _messages(message: Message) -> Iterator[_Message]:
    if message.role == "assistant":
        yield from _assistant(message.parts)
        return
    shown: list[Text | Image] = [p for p in message.parts if isinstance(p, Text | Image)]
    pictures: list[Text | Image] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            content = _joined(part.parts)
            pictures += (picture for picture in part.parts if isinstance(picture, Image))
            yield _Message(role="tool", tool_call_id=part.id, content=content)
    if pictures or any(not isinstance(part, Text) or part.text for part in shown):
        # A tool's message holds text alone: what it shows is shown right after it.
        yield _Message(role="user", content=_content([*pictures, *shown]))


def _assistant(parts: Iterable[Part]) -> Iterator[_Message]:
    text = _joined(parts)
    calls = [
        _Call(
            id=part.id,
            function=_Function(
                name=part.name, arguments=Raw(msgspec.json.encode(part.arguments or "{}"))
            ),
        )
        for part in parts
        if isinstance(part, ToolUse)
    ]
    # What carries a signature means nothing to anybody but the vendor who signed it.
    thought = "".join(p.text for p in parts if isinstance(p, Reasoning) and not p.signature)
    if text or calls:
        yield _Message(
            role="assistant",
            content=text or None,
            reasoning_content=thought or None,
            tool_calls=calls or None,
        )


def _joined(parts: Iterable[Part]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, Text) and part.text)


def _content(parts: list[Text | Image]) -> str | list[_Part]:
    """A text where it can be one: not every vendor takes parts."""
    if all(isinstance(part, Text) for part in parts):
        return _joined(parts)
    return [
        _Part(type="text", text=part.text) if isinstance(part, Text) else _picture(part)
        for part in parts
    ]


def _picture(image: Image) -> _Part:
    url = image.url or f"data:{image.media_type};base64,{image.data}"
    return _Part(type="image_url", image_url=_ImageUrl(url=url))


def _tool(tool: Tool) -> _Tool:
    function = _ToolFunction(
        name=tool.name, description=tool.description or None, parameters=tool.schema
    )
    return _Tool(function=function)
