"""How is a model asked in OpenAI's dialect? Requests for Chat Completions, both ways."""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw

from goent.domain.errors import RequestError
from goent.llm import openai_shapes as wire
from goent.llm.talk import (
    Image,
    JsonAnswer,
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


_decode = msgspec.json.Decoder(wire.Request).decode


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
        json_answer=_json_answer(asked.response_format) if asked.response_format else None,
    )


def encode(request: ModelRequest) -> bytes:
    body = _encode(request)
    if not request.others:
        return body
    own = msgspec.json.decode(body, type=dict[str, Raw])
    return msgspec.json.encode({**dict(request.others), **own})


def _encode(request: ModelRequest) -> bytes:
    system = [wire.Message(role="system", content=request.system)] if request.system else []
    limit = "max_completion_tokens" if _COMPLETION_TOKENS.search(request.model) else "max_tokens"
    choice = request.tool_choice
    return msgspec.json.encode(
        msgspec.structs.replace(
            wire.Request(
                model=request.model,
                messages=[
                    *system,
                    *(m for said in _sayable(request.messages) for m in _messages(said)),
                ],
                tools=[_tool(tool) for tool in request.tools] or None,
                tool_choice=(
                    wire.Choice(function=wire.ChosenFunction(name=choice.name))
                    if isinstance(choice, OneTool)
                    else choice
                ),
                parallel_tool_calls=None if request.parallel_tools else False,
                temperature=request.temperature,
                top_p=request.top_p,
                stop=list(request.stop) or None,
                reasoning_effort=request.reasoning_effort,
                response_format=_response_format(request.json_answer),
                stream=request.stream,
                stream_options=wire.StreamOptions(include_usage=True) if request.stream else None,
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


def _system(messages: Iterable[wire.Message]) -> Iterator[str]:
    """From wherever they stand: elsewhere than in front, other vendors have no place for them."""
    for message in messages:
        if message.role in _SYSTEM and (text := _joined(_parts(message))):
            yield text


def _talk(messages: Iterable[wire.Message]) -> tuple[Message, ...]:
    said = (_message(message) for message in messages if message.role not in _SYSTEM)
    return merged(message for message in said if message.parts)


def _message(message: wire.Message) -> Message:
    parts = _parts(message)
    if message.role == "tool":
        result = ToolResult(id=message.tool_call_id or "", parts=tuple(parts))
        return Message(role="user", parts=(result,))
    if message.role != "assistant":
        return Message(role="user", parts=tuple(parts))
    thought = message.reasoning_content or message.reasoning or ""
    return Message(
        role="assistant",
        parts=(
            *((Reasoning(text=thought),) if isinstance(thought, str) and thought else ()),
            *parts,
            *(
                ToolUse(
                    id=call.id or "",
                    name=call.function.name,
                    arguments=arguments_text(call.function.arguments) or "{}",
                )
                for call in message.tool_calls or ()
                if call.function.name
            ),
        ),
    )


def _parts(message: wire.Message) -> list[Text | Image]:
    content = message.content or ()
    if isinstance(content, str):
        return [Text(text=content)]
    return [found for part in content if (found := _part(part, message.role))]


def _part(part: wire.Part, role: str) -> Text | Image | None:
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


def _tools(tools: Iterable[wire.Tool]) -> Iterator[Tool]:
    for tool in tools:
        if function := tool.function:
            description = function.description or ""
            if bytes(function.parameters) in {b"", b"null"}:
                yield Tool(name=function.name, description=description)
            else:
                schema = function.parameters.copy()
                yield Tool(name=function.name, description=description, schema=schema)


def _choice(choice: str | wire.Choice | None) -> ToolChoice | None:
    if isinstance(choice, wire.Choice):
        return OneTool(name=choice.function.name) if choice.function else None
    return choice if choice in ("auto", "none", "required") else None


def _json_answer(format_: wire.ResponseFormat) -> JsonAnswer | None:
    wanted = format_.json_schema
    if format_.type == "json_schema" and wanted and bytes(wanted.schema):
        schema = wanted.schema.copy()
        return JsonAnswer(schema=schema, name=wanted.name or "answer", strict=wanted.strict)
    return JsonAnswer() if format_.type in {"json_object", "json_schema"} else None


# What goes out


def _response_format(wanted: JsonAnswer | None) -> wire.ResponseFormat | None:
    if wanted is None:
        return None
    if wanted.schema is None:
        return wire.ResponseFormat(type="json_object")
    schema = wire.JsonSchema(name=wanted.name, schema=wanted.schema, strict=wanted.strict)
    return wire.ResponseFormat(type="json_schema", json_schema=schema)


def _sayable(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Without what is empty; thoughts alone say nothing either."""
    kept = (
        Message(role=message.role, parts=tuple(part for part in message.parts if _may_stay(part)))
        for message in messages
    )
    return merged(m for m in kept if not all(isinstance(part, Reasoning) for part in m.parts))


def _may_stay(part: Part) -> bool:
    match part:
        case Text(text=text):
            return bool(text)
        case Reasoning(signature=signature, redacted=redacted):
            # What is signed means nothing to anybody but the vendor who signed it.
            return not (signature or redacted)
        case _:
            return True


def _messages(message: Message) -> Iterator[wire.Message]:
    if message.role == "assistant":
        yield from _assistant(message.parts)
        return
    shown = [part for part in message.parts if isinstance(part, Text | Image)]
    pictures: list[Text | Image] = []
    for part in message.parts:
        if isinstance(part, ToolResult):
            content = _joined(part.parts)
            pictures += (picture for picture in part.parts if isinstance(picture, Image))
            yield wire.Message(role="tool", tool_call_id=part.id, content=content)
    if pictures or shown:
        # A tool's message holds text alone: what it shows is shown right after it.
        yield wire.Message(role="user", content=_content([*pictures, *shown]))


def _assistant(parts: Iterable[Part]) -> Iterator[wire.Message]:
    text = _joined(parts)
    calls = [
        wire.Call(
            id=part.id,
            function=wire.Function(
                name=part.name, arguments=Raw(msgspec.json.encode(part.arguments or "{}"))
            ),
        )
        for part in parts
        if isinstance(part, ToolUse)
    ]
    thought = "".join(part.text for part in parts if isinstance(part, Reasoning))
    yield wire.Message(
        role="assistant",
        content=text or None,
        reasoning_content=thought or None,
        tool_calls=calls or None,
    )


def _joined(parts: Iterable[Part]) -> str:
    return "\n\n".join(part.text for part in parts if isinstance(part, Text) and part.text)


def _content(parts: list[Text | Image]) -> str | list[wire.Part]:
    """A text where it can be one: not every vendor takes parts."""
    if all(isinstance(part, Text) for part in parts):
        return _joined(parts)
    return [
        wire.Part(type="text", text=part.text) if isinstance(part, Text) else _picture(part)
        for part in parts
    ]


def _picture(image: Image) -> wire.Part:
    url = image.url or f"data:{image.media_type};base64,{image.data}"
    return wire.Part(type="image_url", image_url=wire.ImageUrl(url=url))


def _tool(tool: Tool) -> wire.Tool:
    function = wire.ToolFunction(
        name=tool.name, description=tool.description or None, parameters=tool.schema
    )
    return wire.Tool(function=function)
