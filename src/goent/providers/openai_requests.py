"""Reads and writes requests in OpenAI's dialect, Chat Completions."""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goent.domain.errors import RequestError
from goent.providers.model_messages import (
    ChatMessage,
    JsonFormat,
    MessageImage,
    MessagePart,
    MessageReasoning,
    MessageText,
    MessageToolResult,
    MessageToolUse,
    ModelRequest,
    RequiredTool,
    ToolChoice,
    ToolDefinition,
    merge_turns,
)


class OpenAiImageUrl(Struct):
    """A picture's address; `data:` holds the picture itself."""

    url: str


class OpenAiPart(Struct, omit_defaults=True):
    """A part of a message."""

    type: str
    text: str | None = None
    image_url: OpenAiImageUrl | str | None = None


class OpenAiFunction(Struct):
    """What a call calls, and with what."""

    name: str | None = None
    arguments: Raw = Raw(b'""')  # a text; a few clients send the object itself


class OpenAiCall(Struct):
    """A tool call."""

    id: str | None = None
    type: str | None = "function"
    function: OpenAiFunction = msgspec.field(default_factory=OpenAiFunction)


class OpenAiMessage(Struct, omit_defaults=True):
    """One message of any role."""

    role: str
    content: str | list[OpenAiPart] | UnsetType | None = UNSET
    reasoning_content: str | None = None
    reasoning: str | dict[str, Raw] | None = None
    tool_calls: list[OpenAiCall] | None = None
    tool_call_id: str | None = None


class OpenAiToolFunction(Struct, omit_defaults=True):
    """A tool's name, words and schema."""

    name: str
    description: str | None = None
    parameters: Raw = Raw()


class OpenAiTool(Struct):
    """A tool."""

    type: str = "function"
    function: OpenAiToolFunction | None = None


class OpenAiChosenFunction(Struct):
    """The tool that has to be called."""

    name: str


class OpenAiToolChoice(Struct):
    """The choice of one tool."""

    type: str = "function"
    function: OpenAiChosenFunction | None = None


class OpenAiStreamOptions(Struct):
    """Whether the stream tells its usage."""

    include_usage: bool | None = None


class OpenAiJsonSchema(Struct, omit_defaults=True):
    """The form of an answer in JSON."""

    name: str = ""
    schema: Raw = Raw()
    strict: bool | None = None


class OpenAiResponseFormat(Struct, omit_defaults=True):
    """Whether the answer has to be JSON."""

    type: str
    json_schema: OpenAiJsonSchema | None = None


class OpenAiRequest(Struct, omit_defaults=True):
    """What is asked."""

    model: str
    messages: list[OpenAiMessage]
    tools: list[OpenAiTool] | None = None
    tool_choice: str | OpenAiToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    reasoning_effort: str | None = None
    response_format: OpenAiResponseFormat | None = None
    stream: bool | None = None
    stream_options: OpenAiStreamOptions | None = None


# OpenAI's reasoning models refuse `max_tokens`; many other vendors know nothing else.
_REASONING_MODEL = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])")
_DATA_URL = re.compile(r"data:([^;,]*)[^,]*;base64,", re.IGNORECASE)
_SYSTEM_ROLES = frozenset({"system", "developer"})


_decode = msgspec.json.Decoder(OpenAiRequest).decode


def decode_request(body: bytes) -> ModelRequest:
    try:
        asked = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"this is no Chat Completions request: {error}") from error
    stop = asked.stop or ()
    options = asked.stream_options
    return ModelRequest(
        model=asked.model,
        messages=_chat_messages(asked.messages),
        system="\n\n".join(_system_texts(asked.messages)),
        tools=tuple(_tools(asked.tools or ())),
        tool_choice=_choice(asked.tool_choice),
        parallel_tools=asked.parallel_tool_calls is not False,
        max_tokens=asked.max_completion_tokens or asked.max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stream=bool(asked.stream),
        include_usage=bool(options and options.include_usage),
        reasoning_effort=asked.reasoning_effort,
        json_answer=_json_answer(asked.response_format) if asked.response_format else None,
    )


def encode_request(request: ModelRequest) -> bytes:
    body = _encode_body(request)
    if not request.extra_fields:
        return body
    own = msgspec.json.decode(body, type=dict[str, Raw])
    return msgspec.json.encode({**dict(request.extra_fields), **own})


def _encode_body(request: ModelRequest) -> bytes:
    system = [OpenAiMessage(role="system", content=request.system)] if request.system else []
    limit = "max_completion_tokens" if _REASONING_MODEL.search(request.model) else "max_tokens"
    choice = request.tool_choice
    return msgspec.json.encode(
        msgspec.structs.replace(
            OpenAiRequest(
                model=request.model,
                messages=[
                    *system,
                    *(
                        m
                        for said in _sendable_messages(request.messages)
                        for m in _wire_messages(said)
                    ),
                ],
                tools=[_wire_tool(tool) for tool in request.tools] or None,
                tool_choice=(
                    OpenAiToolChoice(function=OpenAiChosenFunction(name=choice.name))
                    if isinstance(choice, RequiredTool)
                    else choice
                ),
                parallel_tool_calls=None if request.parallel_tools else False,
                temperature=request.temperature,
                top_p=request.top_p,
                stop=list(request.stop) or None,
                reasoning_effort=request.reasoning_effort,
                response_format=_response_format(request.json_answer),
                stream=request.stream,
                stream_options=OpenAiStreamOptions(include_usage=True) if request.stream else None,
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


def _system_texts(messages: Iterable[OpenAiMessage]) -> Iterator[str]:
    """From wherever they stand: elsewhere than in front, other vendors have no place for them."""
    for message in messages:
        if message.role in _SYSTEM_ROLES and (text := _joined_text(_parts(message))):
            yield text


def _chat_messages(messages: Iterable[OpenAiMessage]) -> tuple[ChatMessage, ...]:
    said = (_message(message) for message in messages if message.role not in _SYSTEM_ROLES)
    return merge_turns(message for message in said if message.parts)


def _message(message: OpenAiMessage) -> ChatMessage:
    parts = _parts(message)
    if message.role == "tool":
        result = MessageToolResult(id=message.tool_call_id or "", parts=tuple(parts))
        return ChatMessage(role="user", parts=(result,))
    if message.role != "assistant":
        return ChatMessage(role="user", parts=tuple(parts))
    thought = message.reasoning_content or message.reasoning or ""
    return ChatMessage(
        role="assistant",
        parts=(
            *((MessageReasoning(text=thought),) if isinstance(thought, str) and thought else ()),
            *parts,
            *(
                MessageToolUse(
                    id=call.id or "",
                    name=call.function.name,
                    arguments=arguments_text(call.function.arguments) or "{}",
                )
                for call in message.tool_calls or ()
                if call.function.name
            ),
        ),
    )


def _parts(message: OpenAiMessage) -> list[MessageText | MessageImage]:
    content = message.content or ()
    if isinstance(content, str):
        return [MessageText(text=content)]
    return [found for part in content if (found := _part(part, message.role))]


def _part(part: OpenAiPart, role: str) -> MessageText | MessageImage | None:
    if part.image_url:
        return _image(part.image_url if isinstance(part.image_url, str) else part.image_url.url)
    if part.text is not None:
        return MessageText(text=part.text) if part.text else None
    # The model is told that it does not see everything. Its own words are not meddled with.
    return None if role == "assistant" else MessageText(text=f"[{part.type}: left out]")


def _image(url: str) -> MessageImage:
    if inline := _DATA_URL.match(url):
        return MessageImage(media_type=inline[1] or "image/png", data=url[inline.end() :])
    return MessageImage(url=url)


def _tools(tools: Iterable[OpenAiTool]) -> Iterator[ToolDefinition]:
    for tool in tools:
        if function := tool.function:
            description = function.description or ""
            if bytes(function.parameters) in {b"", b"null"}:
                yield ToolDefinition(name=function.name, description=description)
            else:
                schema = function.parameters.copy()
                yield ToolDefinition(name=function.name, description=description, schema=schema)


def _choice(choice: str | OpenAiToolChoice | None) -> ToolChoice | None:
    if isinstance(choice, OpenAiToolChoice):
        return RequiredTool(name=choice.function.name) if choice.function else None
    return choice if choice in ("auto", "none", "required") else None


def _json_answer(format_: OpenAiResponseFormat) -> JsonFormat | None:
    wanted = format_.json_schema
    if format_.type == "json_schema" and wanted and bytes(wanted.schema):
        schema = wanted.schema.copy()
        return JsonFormat(schema=schema, name=wanted.name or "answer", strict=wanted.strict)
    return JsonFormat() if format_.type in {"json_object", "json_schema"} else None


# What goes out


def _response_format(wanted: JsonFormat | None) -> OpenAiResponseFormat | None:
    if wanted is None:
        return None
    if wanted.schema is None:
        return OpenAiResponseFormat(type="json_object")
    schema = OpenAiJsonSchema(name=wanted.name, schema=wanted.schema, strict=wanted.strict)
    return OpenAiResponseFormat(type="json_schema", json_schema=schema)


def _sendable_messages(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Without what is empty; thoughts alone say nothing either."""
    kept = (
        ChatMessage(
            role=message.role, parts=tuple(part for part in message.parts if _is_sendable(part))
        )
        for message in messages
    )
    return merge_turns(
        m for m in kept if not all(isinstance(part, MessageReasoning) for part in m.parts)
    )


def _is_sendable(part: MessagePart) -> bool:
    match part:
        case MessageText(text=text):
            return bool(text)
        case MessageReasoning(signature=signature, redacted=redacted):
            # What is signed means nothing to anybody but the vendor who signed it.
            return not (signature or redacted)
        case _:
            return True


def _wire_messages(message: ChatMessage) -> Iterator[OpenAiMessage]:
    if message.role == "assistant":
        yield from _assistant_messages(message.parts)
        return
    shown = [part for part in message.parts if isinstance(part, MessageText | MessageImage)]
    pictures: list[MessageText | MessageImage] = []
    for part in message.parts:
        if isinstance(part, MessageToolResult):
            content = _joined_text(part.parts)
            pictures += (picture for picture in part.parts if isinstance(picture, MessageImage))
            yield OpenAiMessage(role="tool", tool_call_id=part.id, content=content)
    if pictures or shown:
        # A tool's message holds text alone: what it shows is shown right after it.
        yield OpenAiMessage(role="user", content=_wire_content([*pictures, *shown]))


def _assistant_messages(parts: Iterable[MessagePart]) -> Iterator[OpenAiMessage]:
    text = _joined_text(parts)
    calls = [
        OpenAiCall(
            id=part.id,
            function=OpenAiFunction(
                name=part.name, arguments=Raw(msgspec.json.encode(part.arguments or "{}"))
            ),
        )
        for part in parts
        if isinstance(part, MessageToolUse)
    ]
    thought = "".join(part.text for part in parts if isinstance(part, MessageReasoning))
    yield OpenAiMessage(
        role="assistant",
        content=text or None,
        reasoning_content=thought or None,
        tool_calls=calls or None,
    )


def _joined_text(parts: Iterable[MessagePart]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, MessageText) and part.text)


def _wire_content(parts: list[MessageText | MessageImage]) -> str | list[OpenAiPart]:
    """A text where it can be one: not every vendor takes parts."""
    if all(isinstance(part, MessageText) for part in parts):
        return _joined_text(parts)
    return [
        OpenAiPart(type="text", text=part.text)
        if isinstance(part, MessageText)
        else _wire_image(part)
        for part in parts
    ]


def _wire_image(image: MessageImage) -> OpenAiPart:
    url = image.url or f"data:{image.media_type};base64,{image.data}"
    return OpenAiPart(type="image_url", image_url=OpenAiImageUrl(url=url))


def _wire_tool(tool: ToolDefinition) -> OpenAiTool:
    function = OpenAiToolFunction(
        name=tool.name, description=tool.description or None, parameters=tool.schema
    )
    return OpenAiTool(function=function)
