"""Reads and writes requests in Anthropic's dialect, Messages."""

import hashlib
import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw, Struct

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
    ThinkingSettings,
    ToolChoice,
    ToolDefinition,
    merge_turns,
)


class _WireCacheMark(Struct):
    type: str = "ephemeral"


class _WireSource(Struct, omit_defaults=True):
    type: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""


class AnthropicBlock(Struct, omit_defaults=True):
    """A part of a message; `type` says which of the fields it has."""

    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    source: _WireSource | None = None
    id: str | None = None
    name: str | None = None
    input: Raw = Raw()
    tool_use_id: str | None = None
    content: Raw = Raw()  # of a tool's result; other blocks use the name differently
    is_error: bool | None = None
    cache_control: _WireCacheMark | None = None


class _WireMessage(Struct):
    role: str
    content: str | list[AnthropicBlock]


class _WireTool(Struct, omit_defaults=True):
    """A tool; those that the vendor runs itself have a `type` and no schema."""

    name: str = ""
    description: str | None = None
    input_schema: Raw = Raw()
    type: str | None = None
    cache_control: _WireCacheMark | None = None


class _WireToolChoice(Struct, omit_defaults=True):
    type: str
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _WireThinking(Struct, omit_defaults=True):
    type: str
    budget_tokens: int | None = None


class _WireFormat(Struct):
    type: str
    schema: Raw = Raw()


class _WireOutputConfig(Struct, omit_defaults=True):
    effort: str | None = None
    format: _WireFormat | None = None


class AnthropicRequest(Struct, omit_defaults=True):
    """The request's body. `max_tokens`: the vendor requires it, others who speak its dialect do not."""

    model: str
    messages: list[_WireMessage]
    max_tokens: int | None = None
    system: str | list[AnthropicBlock] | None = None
    tools: list[_WireTool] | None = None
    tool_choice: _WireToolChoice | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: list[str] | None = None
    thinking: _WireThinking | None = None
    output_config: _WireOutputConfig | None = None
    stream: bool | None = None


DEFAULT_MAX_TOKENS = 8192  # a limit is required, and every current model can write this much
OPENING_TEXT = "Go on."  # the first message has to be the user's

_VALID_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_INVALID_ID_CHARS = re.compile(r"[^a-zA-Z0-9_-]")


def safe_id(call_id: str) -> str:
    """The id if Anthropic accepts it, else a valid one that is unique to it and always the same."""
    if _VALID_ID.fullmatch(call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode(errors="surrogatepass")).hexdigest()[:16]
    return f"{_INVALID_ID_CHARS.sub('_', call_id)[:47]}_{digest}"


def arguments_object(arguments: str) -> Raw:
    """A tool call's arguments as the object they have to be, even if the model got them wrong."""
    encoded = arguments.encode(errors="replace")
    try:
        msgspec.json.decode(encoded, type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError):
        # Half a call, or a bare value: kept as text, so that the model can see its mistake.
        return Raw(msgspec.json.encode({"arguments": arguments} if arguments.strip() else {}))
    return Raw(encoded)


def _max_tokens(request: ModelRequest) -> int:
    """The caller's limit, or one that leaves room beside the budget for thinking."""
    if request.max_tokens:
        return request.max_tokens
    budget = request.thinking.budget if request.thinking else None
    return DEFAULT_MAX_TOKENS + (budget or 0)


def _can_think(request: ModelRequest, turns: tuple[ChatMessage, ...]) -> bool:
    """Whether thinking can be requested: not in the middle of a turn that began without it."""
    thinking = request.thinking
    if thinking is None or thinking.mode == "disabled":
        return True
    forced = request.tool_choice not in (None, "auto", "none")
    cramped = (thinking.budget or 0) >= _max_tokens(request)
    return not (forced or cramped) and turns[-1].role == "user" and _has_signed_reasoning(turns)


def _has_signed_reasoning(turns: tuple[ChatMessage, ...]) -> bool:
    """Whether the calls whose results come last began with signed reasoning, or there are none."""
    if not any(isinstance(part, MessageToolResult) for part in turns[-1].parts):
        return True
    return any(
        isinstance(part, MessageReasoning) for before in turns[-2:-1] for part in before.parts[:1]
    )


def _acceptable_messages(messages: tuple[ChatMessage, ...]) -> tuple[ChatMessage, ...]:
    """Alternating turns, the user first, nothing empty, results first, only signed reasoning."""
    kept = (
        ChatMessage(role=message.role, parts=tuple(filter(_is_acceptable, message.parts)))
        for message in messages
    )
    turns = list(merge_turns(message for message in kept if message.parts))
    if not turns or turns[0].role == "assistant":
        turns.insert(0, ChatMessage(role="user", parts=(MessageText(text=OPENING_TEXT),)))
    if turns[-1].role == "assistant":
        turns[-1] = _without_trailing_blanks(turns[-1])
    return tuple(_results_first(turn) for turn in turns)


def _is_acceptable(part: MessagePart) -> bool:
    match part:
        case MessageText(text=text):
            return bool(text.strip())
        case MessageReasoning(signature=signature, redacted=redacted):
            return bool(signature or redacted)
        case _:
            return True


def _results_first(turn: ChatMessage) -> ChatMessage:
    ordered = sorted(turn.parts, key=lambda part: not isinstance(part, MessageToolResult))
    return ChatMessage(role=turn.role, parts=tuple(ordered))


def _without_trailing_blanks(turn: ChatMessage) -> ChatMessage:
    """An answer that the model is to continue must not end in whitespace."""
    *others, last = turn.parts
    if isinstance(last, MessageText):
        return ChatMessage(role=turn.role, parts=(*others, MessageText(text=last.text.rstrip())))
    return turn


# Anthropic has no field for "any JSON object".
JSON_INSTRUCTION = "Answer with one JSON object and nothing else."
_CHOICES_BY_TYPE: dict[str, ToolChoice] = {"auto": "auto", "none": "none", "any": "required"}
_TYPES_BY_CHOICE = {"auto": "auto", "none": "none", "required": "any"}


_decode = msgspec.json.Decoder(AnthropicRequest).decode
_decode_content = msgspec.json.Decoder(str | list[AnthropicBlock]).decode


def decode_request(body: bytes) -> ModelRequest:
    try:
        request = _decode(body)
        messages = tuple(
            _message(message) for message in request.messages if message.role != "system"
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"this is not a Messages request: {error}") from error
    later = (message.content for message in request.messages if message.role == "system")
    system = (text for content in (request.system, *later) if (text := _text(content)))
    choice = request.tool_choice
    return ModelRequest(
        model=request.model,
        messages=tuple(message for message in messages if message.parts),
        system="\n\n".join(system),
        tools=tuple(_tools(request.tools or ())),
        tool_choice=_choice(choice) if choice else None,
        parallel_tools=not (choice and choice.disable_parallel_tool_use),
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        stop=tuple(request.stop_sequences or ()),
        stream=bool(request.stream),
        thinking=_thinking(request.thinking) if request.thinking else None,
        thinking_effort=request.output_config.effort if request.output_config else None,
        json_answer=_json_answer(request.output_config) if request.output_config else None,
    )


def encode_request(request: ModelRequest) -> bytes:
    turns = _acceptable_messages(request.messages)
    thinking = request.thinking if _can_think(request, turns) else None
    system = request.system
    if request.json_answer and request.json_answer.schema is None:
        system = "\n\n".join(filter(None, (system, JSON_INSTRUCTION)))
    thinks = thinking is not None and thinking.mode != "disabled"
    body = AnthropicRequest(
        model=request.model,
        messages=[
            _WireMessage(role=turn.role, content=[wire_block(part) for part in turn.parts])
            for turn in turns
        ],
        max_tokens=_max_tokens(request),
        system=[AnthropicBlock(type="text", text=system)] if system.strip() else None,
        tools=[
            _WireTool(
                name=tool.name, description=tool.description or None, input_schema=tool.schema
            )
            for tool in request.tools
        ]
        or None,
        tool_choice=_wire_choice(request),
        # With thinking it accepts neither, and many models accept only one of the two.
        temperature=None
        if thinks or request.temperature is None
        else min(request.temperature, 1.0),
        top_p=None if thinks or request.temperature is not None else request.top_p,
        stop_sequences=[text for text in request.stop if text.strip()] or None,
        thinking=thinking and _WireThinking(type=thinking.mode, budget_tokens=thinking.budget),
        output_config=_wire_output(request),
        stream=request.stream,
    )
    _mark_cache(body)
    return msgspec.json.encode(body)


# Decoding


def _text(content: str | list[AnthropicBlock] | None) -> str:
    if isinstance(content, list):
        return "\n\n".join(block.text for block in content if block.text)
    return content or ""


def _message(message: _WireMessage) -> ChatMessage:
    role = "assistant" if message.role == "assistant" else "user"
    content = message.content
    if isinstance(content, str):
        return ChatMessage(role=role, parts=(MessageText(text=content),) if content else ())
    found = (_part(block) for block in content)
    parts = tuple(filter(None, found))
    if role == "user" and len(parts) < len(content):
        gone = (block for block in content if block.type not in _PART_TYPES and not block.text)
        parts = (*parts, *(MessageText(text=f"[{block.type}: left out]") for block in gone))
    return ChatMessage(role=role, parts=parts)


def _part(block: AnthropicBlock) -> MessagePart | None:
    match block.type:
        case "thinking":
            return MessageReasoning(text=block.thinking or "", signature=block.signature or "")
        case "redacted_thinking":
            return MessageReasoning(redacted=block.data or "")
        case "tool_use":
            arguments = bytes(block.input).decode()
            return MessageToolUse(
                id=block.id or "", name=block.name or "", arguments=arguments or "{}"
            )
        case "tool_result":
            return MessageToolResult(
                id=block.tool_use_id or "",
                parts=tuple(_result_parts(block.content)),
                is_error=bool(block.is_error),
            )
        case _:
            return _shown_part(block)


_PART_TYPES = frozenset(
    {"thinking", "redacted_thinking", "tool_use", "tool_result", "text", "image"}
)


def _shown_part(block: AnthropicBlock) -> MessageText | MessageImage | None:
    if block.type == "text":
        return MessageText(text=block.text) if block.text else None
    source = block.source
    if block.type == "image" and source and (source.data or source.url):
        return MessageImage(media_type=source.media_type, data=source.data, url=source.url)
    return None


def _result_parts(content: Raw) -> Iterator[MessageText | MessageImage]:
    if bytes(content) in {b"", b"null"}:
        return
    shown = _decode_content(content)
    if isinstance(shown, str):
        if shown:
            yield MessageText(text=shown)
        return
    for block in shown:
        if part := _shown_part(block):
            yield part
        elif block.type not in _PART_TYPES:
            yield MessageText(text=f"[{block.type}: left out]")


def _tools(tools: Iterable[_WireTool]) -> Iterator[ToolDefinition]:
    """Without those that Anthropic runs itself: they have no schema, and nobody else has them."""
    for tool in tools:
        if tool.name and tool.type in (None, "custom") and bytes(tool.input_schema):
            schema = tool.input_schema.copy()
            yield ToolDefinition(name=tool.name, description=tool.description or "", schema=schema)


def _choice(choice: _WireToolChoice) -> ToolChoice | None:
    if choice.type == "tool" and choice.name:
        return RequiredTool(name=choice.name)
    return _CHOICES_BY_TYPE.get(choice.type)


def _thinking(thinking: _WireThinking) -> ThinkingSettings | None:
    match thinking.type:
        case "enabled" | "adaptive" | "disabled" as mode:
            return ThinkingSettings(mode=mode, budget=thinking.budget_tokens)
        case _:
            return None


def _json_answer(output: _WireOutputConfig) -> JsonFormat | None:
    form = output.format
    if form is None or form.type != "json_schema" or not bytes(form.schema):
        return None
    return JsonFormat(schema=form.schema.copy())


# Encoding


def _wire_output(request: ModelRequest) -> _WireOutputConfig | None:
    wanted = request.json_answer
    form = (
        _WireFormat(type="json_schema", schema=wanted.schema) if wanted and wanted.schema else None
    )
    if form is None and not request.thinking_effort:
        return None
    return _WireOutputConfig(effort=request.thinking_effort, format=form)


def wire_block(part: MessagePart) -> AnthropicBlock:
    """A part of a message as Anthropic writes it, in requests and answers."""
    match part:
        case MessageText(text=text):
            return AnthropicBlock(type="text", text=text)
        case MessageReasoning(redacted=data) if data:
            return AnthropicBlock(type="redacted_thinking", data=data)
        case MessageReasoning(text=text, signature=signature):
            return AnthropicBlock(type="thinking", thinking=text, signature=signature)
        case MessageImage(url=url) if url:
            return AnthropicBlock(type="image", source=_WireSource(type="url", url=url))
        case MessageImage(media_type=media_type, data=data):
            source = _WireSource(type="base64", media_type=media_type, data=data)
            return AnthropicBlock(type="image", source=source)
        case MessageToolUse(id=id_, name=name, arguments=arguments):
            return AnthropicBlock(
                type="tool_use", id=safe_id(id_), name=name, input=arguments_object(arguments)
            )
        case MessageToolResult(id=id_, parts=parts, is_error=is_error):
            content = [wire_block(part) for part in parts if _is_acceptable(part)]
            return AnthropicBlock(
                type="tool_result",
                tool_use_id=safe_id(id_),
                content=Raw(msgspec.json.encode(content)),
                is_error=is_error or None,
            )


def _wire_choice(request: ModelRequest) -> _WireToolChoice | None:
    if not request.tools:
        return None
    choice = request.tool_choice
    alone = None if request.parallel_tools else True
    if isinstance(choice, RequiredTool):
        return _WireToolChoice(type="tool", name=choice.name, disable_parallel_tool_use=alone)
    if choice == "none":
        return _WireToolChoice(type="none")
    if choice or alone:
        return _WireToolChoice(
            type=_TYPES_BY_CHOICE[choice or "auto"], disable_parallel_tool_use=alone
        )
    return None


def _mark_cache(body: AnthropicRequest) -> None:
    """Mark the prefix that the next call will share. A lone question has none, and writing costs.

    Three of the four marks that are allowed: after tools and system, after the conversation so far,
    and after the conversation one turn ago, where the last call left its own mark.
    """
    if not body.tools and len(body.messages) == 1:
        return
    if isinstance(body.system, list):
        body.system[-1].cache_control = _WireCacheMark()
    elif body.tools:
        body.tools[-1].cache_control = _WireCacheMark()
    users = [message for message in body.messages if message.role == "user"]
    for message in users[-2:]:
        blocks = message.content if isinstance(message.content, list) else []
        blocks[-1].cache_control = _WireCacheMark()
