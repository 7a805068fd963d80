"""How is a model asked in Anthropic's dialect? Requests for Messages, both ways."""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw

from goent.domain.errors import RequestError
from goent.llm import anthropic_shapes as wire
from goent.llm.anthropic_rules import (
    as_object,
    may_think,
    most_tokens,
    safe_id,
    talk_that_it_takes,
)
from goent.llm.talk import (
    Image,
    JsonAnswer,
    Message,
    ModelRequest,
    OneTool,
    Part,
    Reasoning,
    Text,
    Thinking,
    Tool,
    ToolChoice,
    ToolResult,
    ToolUse,
)

ANY_JSON = "Answer with one JSON object and nothing else."  # it has no word for that
_CHOICES: dict[str, ToolChoice] = {"auto": "auto", "none": "none", "any": "required"}
_CHOSEN = {"auto": "auto", "none": "none", "required": "any"}


_decode = msgspec.json.Decoder(wire.Request).decode
_shown = msgspec.json.Decoder(str | list[wire.Block]).decode


def decode(body: bytes) -> ModelRequest:
    try:
        asked = _decode(body)
        messages = tuple(
            _message(message) for message in asked.messages if message.role != "system"
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestError(f"this is no Messages request: {error}") from error
    later = (message.content for message in asked.messages if message.role == "system")
    system = (text for told in (asked.system, *later) if (text := _text(told)))
    choice = asked.tool_choice
    return ModelRequest(
        model=asked.model,
        messages=tuple(message for message in messages if message.parts),
        system="\n\n".join(system),
        tools=tuple(_tools(asked.tools or ())),
        tool_choice=_choice(choice) if choice else None,
        parallel_tools=not (choice and choice.disable_parallel_tool_use),
        max_tokens=asked.max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        stop=tuple(asked.stop_sequences or ()),
        stream=bool(asked.stream),
        thinking=_thinking(asked.thinking) if asked.thinking else None,
        thinking_effort=asked.output_config.effort if asked.output_config else None,
        json_answer=_json_answer(asked.output_config) if asked.output_config else None,
    )


def encode(request: ModelRequest) -> bytes:
    thinking = request.thinking if may_think(request) else None
    system = request.system
    if request.json_answer and request.json_answer.schema is None:
        system = "\n\n".join(filter(None, (system, ANY_JSON)))
    thinks = thinking is not None and thinking.mode != "disabled"
    body = wire.Request(
        model=request.model,
        messages=[
            wire.Message(role=said.role, content=[_block(part) for part in said.parts])
            for said in talk_that_it_takes(request.messages)
        ],
        max_tokens=most_tokens(request),
        system=[wire.Block(type="text", text=system)] if system.strip() else None,
        tools=[
            wire.Tool(
                name=tool.name, description=tool.description or None, input_schema=tool.schema
            )
            for tool in request.tools
        ]
        or None,
        tool_choice=_chosen(request),
        # While it thinks it takes neither; and many models take one of them alone.
        temperature=None
        if thinks or request.temperature is None
        else min(request.temperature, 1.0),
        top_p=None if thinks or request.temperature is not None else request.top_p,
        stop_sequences=[text for text in request.stop if text.strip()] or None,
        thinking=thinking and wire.Thinking(type=thinking.mode, budget_tokens=thinking.budget),
        output_config=_output(request),
        stream=request.stream,
    )
    _mark(body)
    return msgspec.json.encode(body)


# What comes in


def _text(content: str | list[wire.Block] | None) -> str:
    if isinstance(content, list):
        return "\n\n".join(block.text for block in content if block.text)
    return content or ""


def _message(message: wire.Message) -> Message:
    role = "assistant" if message.role == "assistant" else "user"
    content = message.content
    if isinstance(content, str):
        return Message(role=role, parts=(Text(text=content),) if content else ())
    found = (_part(block) for block in content)
    parts = tuple(part for part in found if part is not None)
    if role == "user" and len(parts) < len(content):
        gone = (block for block in content if block.type not in _PARTS and not block.text)
        parts = (*parts, *(Text(text=f"[{block.type}: left out]") for block in gone))
    return Message(role=role, parts=parts)


def _part(block: wire.Block) -> Part | None:
    match block.type:
        case "thinking":
            return Reasoning(text=block.thinking or "", signature=block.signature or "")
        case "redacted_thinking":
            return Reasoning(redacted=block.data or "")
        case "tool_use":
            arguments = bytes(block.input).decode()
            return ToolUse(id=block.id or "", name=block.name or "", arguments=arguments or "{}")
        case "tool_result":
            return ToolResult(
                id=block.tool_use_id or "",
                parts=tuple(_results(block.content)),
                is_error=bool(block.is_error),
            )
        case _:
            return _shown_part(block)


_PARTS = frozenset({"thinking", "redacted_thinking", "tool_use", "tool_result", "text", "image"})


def _shown_part(block: wire.Block) -> Text | Image | None:
    if block.type == "text":
        return Text(text=block.text) if block.text else None
    source = block.source
    if block.type == "image" and source and (source.data or source.url):
        return Image(media_type=source.media_type, data=source.data, url=source.url)
    return None


def _results(content: Raw) -> Iterator[Text | Image]:
    if bytes(content) in {b"", b"null"}:
        return
    shown = _shown(content)
    if isinstance(shown, str):
        if shown:
            yield Text(text=shown)
        return
    for block in shown:
        if part := _shown_part(block):
            yield part
        elif block.type not in _PARTS:
            yield Text(text=f"[{block.type}: left out]")


def _tools(tools: Iterable[wire.Tool]) -> Iterator[Tool]:
    """Without those that run at Anthropic's: they have no schema, and nobody else has them."""
    for tool in tools:
        if tool.name and tool.type in (None, "custom") and bytes(tool.input_schema):
            schema = tool.input_schema.copy()
            yield Tool(name=tool.name, description=tool.description or "", schema=schema)


def _choice(choice: wire.Choice) -> ToolChoice | None:
    if choice.type == "tool" and choice.name:
        return OneTool(name=choice.name)
    return _CHOICES.get(choice.type)


def _thinking(thinking: wire.Thinking) -> Thinking | None:
    match thinking.type:
        case "enabled" | "adaptive" | "disabled" as mode:
            return Thinking(mode=mode, budget=thinking.budget_tokens)
        case _:
            return None


def _json_answer(output: wire.Output) -> JsonAnswer | None:
    form = output.format
    if form is None or form.type != "json_schema" or not bytes(form.schema):
        return None
    return JsonAnswer(schema=form.schema.copy())


# What goes out


def _output(request: ModelRequest) -> wire.Output | None:
    wanted = request.json_answer
    form = (
        wire.Format(type="json_schema", schema=wanted.schema) if wanted and wanted.schema else None
    )
    if form is None and not request.thinking_effort:
        return None
    return wire.Output(effort=request.thinking_effort, format=form)


def _block(part: Part) -> wire.Block:
    match part:
        case Text(text=text):
            return wire.Block(type="text", text=text)
        case Reasoning(redacted=data) if data:
            return wire.Block(type="redacted_thinking", data=data)
        case Reasoning(text=text, signature=signature):
            return wire.Block(type="thinking", thinking=text, signature=signature)
        case Image(url=url) if url:
            return wire.Block(type="image", source=wire.Source(type="url", url=url))
        case Image(media_type=media_type, data=data):
            source = wire.Source(type="base64", media_type=media_type, data=data)
            return wire.Block(type="image", source=source)
        case ToolUse(id=id_, name=name, arguments=arguments):
            return wire.Block(
                type="tool_use", id=safe_id(id_), name=name, input=as_object(arguments)
            )
        case ToolResult(id=id_, parts=parts, is_error=is_error):
            said = [_block(p) for p in parts if not isinstance(p, Text) or p.text.strip()]
            return wire.Block(
                type="tool_result",
                tool_use_id=safe_id(id_),
                content=Raw(msgspec.json.encode(said)),
                is_error=is_error or None,
            )


def _chosen(request: ModelRequest) -> wire.Choice | None:
    if not request.tools:
        return None
    choice = request.tool_choice
    alone = None if request.parallel_tools else True
    if isinstance(choice, OneTool):
        return wire.Choice(type="tool", name=choice.name, disable_parallel_tool_use=alone)
    if choice == "none":
        return wire.Choice(type="none")
    if choice or alone:
        return wire.Choice(type=_CHOSEN[choice or "auto"], disable_parallel_tool_use=alone)
    return None


def _mark(body: wire.Request) -> None:
    """Mark what the next call will begin with too. Writing a cache costs: a lone question has none.

    Three marks of the four that are allowed: tools with system, the talk so far, and the talk as
    it was one turn ago, where the last call left its own mark.
    """
    if not body.tools and len(body.messages) == 1:
        return
    if isinstance(body.system, list):
        body.system[-1].cache_control = wire.Mark()
    elif body.tools:
        body.tools[-1].cache_control = wire.Mark()
    asked = [message for message in body.messages if message.role == "user"]
    for message in asked[-2:]:
        blocks = message.content if isinstance(message.content, list) else []
        blocks[-1].cache_control = wire.Mark()
