"""Reads and writes requests in OpenAI's dialect, Chat Completions."""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goent.domain.errors import RequestError
from goent.providers.model_messages import (
    NO_ARGUMENTS,
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


class _WireImageUrl(Struct):
    url: str  # `data:…` holds the picture itself


class _WirePart(Struct, omit_defaults=True):
    type: str
    text: str | None = None
    image_url: _WireImageUrl | str | None = None


class _WireFunction(Struct):
    name: str | None = None
    arguments: Raw = Raw(b'""')  # a text; a few clients send the object itself


class _WireCall(Struct):
    id: str | None = None
    type: str | None = "function"
    function: _WireFunction = msgspec.field(default_factory=_WireFunction)


class _WireMessage(Struct, omit_defaults=True):
    role: str
    content: str | list[_WirePart] | UnsetType | None = UNSET
    reasoning_content: str | None = None
    reasoning: str | dict[str, Raw] | None = None
    tool_calls: list[_WireCall] | None = None
    tool_call_id: str | None = None


class _WireToolFunction(Struct, omit_defaults=True):
    name: str
    description: str | None = None
    parameters: Raw = Raw()


class _WireTool(Struct):
    type: str = "function"
    function: _WireToolFunction | None = None


class _WireChosenFunction(Struct):
    name: str


class _WireToolChoice(Struct):
    type: str = "function"
    function: _WireChosenFunction | None = None


class _WireStreamOptions(Struct):
    include_usage: bool | None = None


class _WireJsonSchema(Struct, omit_defaults=True):
    name: str = ""
    schema: Raw = Raw()
    strict: bool | None = None


class _WireResponseFormat(Struct, omit_defaults=True):
    type: str
    json_schema: _WireJsonSchema | None = None


class OpenAiRequest(Struct, omit_defaults=True):
    """The request's body."""

    model: str
    messages: list[_WireMessage]
    tools: list[_WireTool] | None = None
    tool_choice: str | _WireToolChoice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    reasoning_effort: str | None = None
    response_format: _WireResponseFormat | None = None
    stream: bool | None = None
    stream_options: _WireStreamOptions | None = None


# OpenAI's reasoning models refuse `max_tokens`; many other vendors know nothing else.
_REASONING_MODEL = re.compile(r"(?:^|/)(?:o\d|gpt-[5-9])")
_DATA_URL = re.compile(r"data:([^;,]*)[^,]*;base64,", re.IGNORECASE)
_SYSTEM_ROLES = frozenset({"system", "developer"})


_decode = msgspec.json.Decoder(OpenAiRequest).decode


def decode_request(body: bytes) -> ModelRequest:
    try:
        request = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"this is not a Chat Completions request: {error}") from error
    stop = request.stop or ()
    return ModelRequest(
        model=request.model,
        messages=_chat_messages(request.messages),
        system="\n\n".join(_system_texts(request.messages)),
        tools=tuple(_tools(request.tools or ())),
        tool_choice=_choice(request.tool_choice),
        parallel_tools=request.parallel_tool_calls is not False,
        max_tokens=request.max_completion_tokens or request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        stream=bool(request.stream),
        reasoning_effort=request.reasoning_effort,
        json_answer=_json_answer(request.response_format) if request.response_format else None,
    )


def encode_request(request: ModelRequest) -> bytes:
    body = _encode_body(request)
    if not request.extra_fields:
        return body
    fields = msgspec.json.decode(body, type=dict[str, Raw])
    return msgspec.json.encode({**dict(request.extra_fields), **fields})


def _encode_body(request: ModelRequest) -> bytes:
    messages = [_WireMessage(role="system", content=request.system)] if request.system else []
    for turn in _sendable_messages(request.messages):
        messages += _wire_messages(turn)
    reasons = _REASONING_MODEL.search(request.model)
    choice = request.tool_choice
    return msgspec.json.encode(
        OpenAiRequest(
            model=request.model,
            messages=messages,
            tools=[_wire_tool(tool) for tool in request.tools] or None,
            tool_choice=(
                _WireToolChoice(function=_WireChosenFunction(name=choice.name))
                if isinstance(choice, RequiredTool)
                else choice
            ),
            parallel_tool_calls=None if request.parallel_tools else False,
            max_tokens=None if reasons else request.max_tokens,
            max_completion_tokens=request.max_tokens if reasons else None,
            temperature=request.temperature,
            top_p=request.top_p,
            stop=list(request.stop) or None,
            reasoning_effort=request.reasoning_effort,
            response_format=_response_format(request.json_answer),
            stream=request.stream,
            stream_options=_WireStreamOptions(include_usage=True) if request.stream else None,
        )
    )


def arguments_text(raw: Raw) -> str:
    """A tool call's arguments as text, even if they came as an object."""
    encoded = bytes(raw)
    if encoded.startswith(b'"'):
        return msgspec.json.decode(encoded, type=str)
    return "" if encoded == b"null" else encoded.decode()


# Decoding


def _system_texts(messages: Iterable[_WireMessage]) -> Iterator[str]:
    """From anywhere in the conversation: other vendors accept a system prompt only in front."""
    for message in messages:
        if message.role in _SYSTEM_ROLES and (text := _joined_text(_parts(message))):
            yield text


def _chat_messages(messages: Iterable[_WireMessage]) -> tuple[ChatMessage, ...]:
    turns = (_message(message) for message in messages if message.role not in _SYSTEM_ROLES)
    return merge_turns(turn for turn in turns if turn.parts)


def _message(message: _WireMessage) -> ChatMessage:
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


def _parts(message: _WireMessage) -> list[MessageText | MessageImage]:
    content = message.content or ()
    if isinstance(content, str):
        return [MessageText(text=content)]
    return [found for part in content if (found := _part(part, message.role))]


def _part(part: _WirePart, role: str) -> MessageText | MessageImage | None:
    if part.image_url:
        return _image(part.image_url if isinstance(part.image_url, str) else part.image_url.url)
    if part.text is not None:
        return MessageText(text=part.text) if part.text else None
    # Tells the model that something is missing; its own messages are left as they are.
    return None if role == "assistant" else MessageText(text=f"[{part.type}: left out]")


def _image(url: str) -> MessageImage:
    if inline := _DATA_URL.match(url):
        return MessageImage(media_type=inline[1] or "image/png", data=url[inline.end() :])
    return MessageImage(url=url)


def _tools(tools: Iterable[_WireTool]) -> Iterator[ToolDefinition]:
    for tool in tools:
        if function := tool.function:
            none = bytes(function.parameters) in {b"", b"null"}
            yield ToolDefinition(
                name=function.name,
                description=function.description or "",
                schema=NO_ARGUMENTS if none else function.parameters.copy(),
            )


def _choice(choice: str | _WireToolChoice | None) -> ToolChoice | None:
    if isinstance(choice, _WireToolChoice):
        return RequiredTool(name=choice.function.name) if choice.function else None
    return choice if choice in ("auto", "none", "required") else None


def _json_answer(format_: _WireResponseFormat) -> JsonFormat | None:
    wanted = format_.json_schema
    if format_.type == "json_schema" and wanted and bytes(wanted.schema):
        schema = wanted.schema.copy()
        return JsonFormat(schema=schema, name=wanted.name or "answer", strict=wanted.strict)
    return JsonFormat() if format_.type in {"json_object", "json_schema"} else None


# Encoding


def _response_format(wanted: JsonFormat | None) -> _WireResponseFormat | None:
    if wanted is None:
        return None
    if wanted.schema is None:
        return _WireResponseFormat(type="json_object")
    schema = _WireJsonSchema(name=wanted.name, schema=wanted.schema, strict=wanted.strict)
    return _WireResponseFormat(type="json_schema", json_schema=schema)


def _sendable_messages(messages: Iterable[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Without empty messages and those of reasoning alone."""
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
            # Signed reasoning is meaningless to any other vendor.
            return not (signature or redacted)
        case _:
            return True


def _wire_messages(message: ChatMessage) -> Iterator[_WireMessage]:
    if message.role == "assistant":
        yield _assistant_message(message.parts)
        return
    shown = [part for part in message.parts if isinstance(part, MessageText | MessageImage)]
    pictures: list[MessageText | MessageImage] = []
    for part in message.parts:
        if isinstance(part, MessageToolResult):
            pictures += (picture for picture in part.parts if isinstance(picture, MessageImage))
            content = _joined_text(part.parts)
            yield _WireMessage(role="tool", tool_call_id=part.id, content=content)
    if pictures or shown:
        # A tool's message holds text only, so its pictures follow right after it.
        yield _WireMessage(role="user", content=_wire_content([*pictures, *shown]))


def _assistant_message(parts: Iterable[MessagePart]) -> _WireMessage:
    text = _joined_text(parts)
    calls = [_wire_call(part) for part in parts if isinstance(part, MessageToolUse)]
    thought = "".join(part.text for part in parts if isinstance(part, MessageReasoning))
    return _WireMessage(
        role="assistant",
        content=text or None,
        reasoning_content=thought or None,
        tool_calls=calls or None,
    )


def _wire_call(use: MessageToolUse) -> _WireCall:
    arguments = Raw(msgspec.json.encode(use.arguments or "{}"))
    return _WireCall(id=use.id, function=_WireFunction(name=use.name, arguments=arguments))


def _joined_text(parts: Iterable[MessagePart]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, MessageText) and part.text)


def _wire_content(parts: list[MessageText | MessageImage]) -> str | list[_WirePart]:
    """Plain text where possible: not every vendor accepts parts."""
    if all(isinstance(part, MessageText) for part in parts):
        return _joined_text(parts)
    return [
        _WirePart(type="text", text=part.text)
        if isinstance(part, MessageText)
        else _wire_image(part)
        for part in parts
    ]


def _wire_image(image: MessageImage) -> _WirePart:
    url = image.url or f"data:{image.media_type};base64,{image.data}"
    return _WirePart(type="image_url", image_url=_WireImageUrl(url=url))


def _wire_tool(tool: ToolDefinition) -> _WireTool:
    function = _WireToolFunction(
        name=tool.name, description=tool.description or None, parameters=tool.schema
    )
    return _WireTool(function=function)
