"""The vendors' side of OpenAI Chat Completions and Anthropic Messages.

It shares no code with `goent.providers`, so that a mistake there cannot cancel itself out in tests.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from goent.domain.types import Usage
from goent.testing.script import FinishReason, ScriptedRateLimits
from goent.testing.scripted_calls import (
    Conversation,
    Message,
    ReplyFrame,
    ScriptedReply,
    ToolCall,
    VendorRefusal,
    text_pieces,
)

_OPENAI_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


class _OpenAIPart(Struct):
    type: str = "text"
    text: str = ""


class _OpenAIFunction(Struct):
    name: str
    arguments: str = ""


class _OpenAIToolCall(Struct):
    id: str
    function: _OpenAIFunction


class _OpenAIMessage(Struct):
    role: str
    content: str | tuple[_OpenAIPart, ...] | None = None
    tool_calls: tuple[_OpenAIToolCall, ...] | None = None
    tool_call_id: str | None = None


class _OpenAITool(Struct):
    function: _OpenAIFunction


class _OpenAIStreamOptions(Struct):
    include_usage: bool = False


class _OpenAIRequest(Struct):
    model: str
    messages: tuple[_OpenAIMessage, ...]
    tools: tuple[_OpenAITool, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    stream: bool = False
    stream_options: _OpenAIStreamOptions | None = None


_openai_requests = msgspec.json.Decoder(_OpenAIRequest)


class OpenAI:
    """Chat Completions."""

    endpoint = "/chat/completions"
    tool_id = "call"

    def key(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return token if scheme.lower() == "bearer" else None

    def conversation(self, body: bytes) -> Conversation:
        try:
            request = _openai_requests.decode(body)
        except msgspec.DecodeError as error:
            raise VendorRefusal(400, f"this is not a Chat Completions request: {error}") from error
        systems = ("system", "developer")
        return Conversation(
            model=request.model,
            system="\n".join(_openai_text(m) for m in request.messages if m.role in systems),
            messages=tuple(_openai_message(m) for m in request.messages if m.role not in systems),
            tools=tuple(tool.function.name for tool in request.tools),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            stream=request.stream,
            stream_usage=bool(request.stream_options and request.stream_options.include_usage),
        )

    def billable(self, usage: Usage) -> Usage:
        """OpenAI counts writing the cache as input."""
        return msgspec.structs.replace(usage, input=usage.input + usage.cache_write, cache_write=0)

    def stream(self, reply: ScriptedReply) -> Iterator[ReplyFrame]:
        yield _openai_delta(reply, "open", {"role": "assistant", "content": ""})
        for piece in text_pieces(reply.think, reply.chunk):
            yield _openai_delta(reply, "piece", {"reasoning_content": piece})
        for piece in text_pieces(reply.say, reply.chunk):
            yield _openai_delta(reply, "piece", {"content": piece})
        for index, tool in enumerate(reply.tools):
            head = {"index": index, **_openai_tool_call(tool, arguments="")}
            yield _openai_delta(reply, "open", {"tool_calls": [head]})
            for piece in text_pieces(tool.arguments, reply.chunk):
                more = {"index": index, "function": {"arguments": piece}}
                yield _openai_delta(reply, "piece", {"tool_calls": [more]})
        yield _openai_chunk(
            reply, "close", [{"index": 0, "delta": {}, "finish_reason": reply.stop}]
        )
        if reply.stream_usage:
            yield _openai_chunk(reply, "close", [], usage=_openai_usage(reply.usage))
        yield ReplyFrame(data=b"data: [DONE]\n\n", kind="close")

    def whole(self, reply: ScriptedReply) -> bytes:
        message: dict[str, object] = {"role": "assistant", "content": reply.say or None}
        if reply.think:
            message["reasoning_content"] = reply.think
        if reply.tools:
            message["tool_calls"] = [
                _openai_tool_call(t, arguments=t.arguments) for t in reply.tools
            ]
        choice = {"index": 0, "message": message, "finish_reason": reply.stop}
        head = _openai_head(reply, "chat.completion")
        return msgspec.json.encode(
            {**head, "choices": [choice], "usage": _openai_usage(reply.usage)}
        )

    def error(self, refused: VendorRefusal) -> bytes:
        fallback = "server_error" if refused.servers_fault else "invalid_request_error"
        kind, code = _OPENAI_ERRORS.get(refused.status, (fallback, None))
        error = {
            "message": refused.message,
            "type": kind,
            "param": None,
            "code": refused.code or code,
        }
        return msgspec.json.encode({"error": error})

    def error_frame(self, refused: VendorRefusal) -> bytes:
        return b"data: " + self.error(refused) + b"\n\n"

    def limits(self, limits: ScriptedRateLimits) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, window in (("requests", limits.requests), ("tokens", limits.tokens)):
            if window:
                headers[f"x-ratelimit-limit-{name}"] = str(window.limit)
                headers[f"x-ratelimit-remaining-{name}"] = str(window.remaining)
                headers[f"x-ratelimit-reset-{name}"] = f"{window.reset:g}s"
        return headers


def _openai_text(message: _OpenAIMessage) -> str:
    if isinstance(message.content, tuple):
        return "".join(part.text for part in message.content)
    return message.content or ""


def _openai_message(message: _OpenAIMessage) -> Message:
    if message.role not in ("user", "assistant", "tool"):
        raise VendorRefusal(
            400, f"{message.role!r} is not a role: use system, user, assistant or tool"
        )
    calls = (
        ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
        for call in message.tool_calls or ()
    )
    return Message(
        role=message.role,
        text=_openai_text(message),
        tool_calls=tuple(calls),
        tool_call_id=message.tool_call_id,
    )


def _openai_tool_call(tool: ToolCall, *, arguments: str) -> dict[str, object]:
    function = {"name": tool.name, "arguments": arguments}
    return {"id": tool.id, "type": "function", "function": function}


def _openai_head(reply: ScriptedReply, kind: str) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{reply.n}",
        "object": kind,
        "created": int(time.time()),
        "model": reply.model,
    }


def _openai_delta(
    reply: ScriptedReply, kind: Literal["open", "piece"], delta: Mapping[str, object]
) -> ReplyFrame:
    return _openai_chunk(reply, kind, [{"index": 0, "delta": delta, "finish_reason": None}])


def _openai_chunk(
    reply: ScriptedReply,
    kind: Literal["open", "piece", "close"],
    choices: Sequence[Mapping[str, object]],
    usage: Mapping[str, object] | None = None,
) -> ReplyFrame:
    chunk = {**_openai_head(reply, "chat.completion.chunk"), "choices": choices}
    if reply.stream_usage:
        chunk["usage"] = usage
    return ReplyFrame(data=b"data: " + msgspec.json.encode(chunk) + b"\n\n", kind=kind)


def _openai_usage(usage: Usage) -> dict[str, object]:
    prompt = usage.input + usage.cache_read
    completion = usage.output + usage.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


_ANTHROPIC_ERRORS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_ANTHROPIC_STOPS: dict[FinishReason, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class _AnthropicBlock(Struct):
    type: str = "text"
    text: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")
    tool_use_id: str = ""
    content: "str | tuple[_AnthropicBlock, ...] | None" = None


class _AnthropicMessage(Struct):
    role: Literal["user", "assistant"]
    content: str | tuple[_AnthropicBlock, ...]


class _AnthropicTool(Struct):
    name: str


class _AnthropicRequest(Struct):
    model: str
    max_tokens: int
    messages: tuple[_AnthropicMessage, ...]
    system: str | tuple[_AnthropicBlock, ...] = ""
    tools: tuple[_AnthropicTool, ...] = ()
    temperature: float | None = None
    stream: bool = False


_anthropic_requests = msgspec.json.Decoder(_AnthropicRequest)


class Anthropic:
    """Messages."""

    endpoint = "/messages"
    tool_id = "toolu"

    def key(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-api-key")

    def conversation(self, body: bytes) -> Conversation:
        try:
            request = _anthropic_requests.decode(body)
        except msgspec.DecodeError as error:
            raise VendorRefusal(400, f"this is not a Messages request: {error}") from error
        return Conversation(
            model=request.model,
            system=_anthropic_text(request.system),
            messages=tuple(
                part for message in request.messages for part in _anthropic_messages(message)
            ),
            tools=tuple(tool.name for tool in request.tools),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            stream=request.stream,
        )

    def billable(self, usage: Usage) -> Usage:
        """Anthropic counts reasoning as output."""
        return msgspec.structs.replace(usage, output=usage.output + usage.reasoning, reasoning=0)

    def stream(self, reply: ScriptedReply) -> Iterator[ReplyFrame]:
        start = {**_anthropic_envelope(reply), "usage": _anthropic_usage(reply.usage, output=1)}
        yield _anthropic_event("message_start", {"message": start})
        yield _anthropic_event("ping", {})
        index = 0
        if reply.think:
            yield from _thinking_frames(reply, index)
            index += 1
        if reply.say:
            yield _block_start(index, {"type": "text", "text": ""})
            for piece in text_pieces(reply.say, reply.chunk):
                yield _block_delta(index, {"type": "text_delta", "text": piece})
            yield _anthropic_event("content_block_stop", {"index": index})
            index += 1
        for number, tool in enumerate(reply.tools, index):
            yield from _tool_use_frames(reply, number, tool)
        ending = {"stop_reason": _ANTHROPIC_STOPS[reply.stop], "stop_sequence": None}
        usage = {"output_tokens": reply.usage.output}
        yield _anthropic_event("message_delta", {"delta": ending, "usage": usage}, kind="close")
        yield _anthropic_event("message_stop", {}, kind="close")

    def whole(self, reply: ScriptedReply) -> bytes:
        content: list[dict[str, object]] = []
        if reply.think:
            content.append({"type": "thinking", "thinking": reply.think, "signature": "scripted"})
        if reply.say:
            content.append({"type": "text", "text": reply.say})
        for tool in reply.tools:
            arguments = Raw(tool.arguments.encode())
            content.append(
                {"type": "tool_use", "id": tool.id, "name": tool.name, "input": arguments}
            )
        message = {
            **_anthropic_envelope(reply),
            "content": content,
            "stop_reason": _ANTHROPIC_STOPS[reply.stop],
            "usage": _anthropic_usage(reply.usage, output=reply.usage.output),
        }
        return msgspec.json.encode(message)

    def error(self, refused: VendorRefusal) -> bytes:
        fallback = "api_error" if refused.servers_fault else "invalid_request_error"
        kind = refused.code or _ANTHROPIC_ERRORS.get(refused.status, fallback)
        return msgspec.json.encode(
            {"type": "error", "error": {"type": kind, "message": refused.message}}
        )

    def error_frame(self, refused: VendorRefusal) -> bytes:
        return b"event: error\ndata: " + self.error(refused) + b"\n\n"

    def limits(self, limits: ScriptedRateLimits) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, window in (("requests", limits.requests), ("tokens", limits.tokens)):
            if window:
                reset = datetime.now(UTC) + timedelta(seconds=window.reset)
                headers[f"anthropic-ratelimit-{name}-limit"] = str(window.limit)
                headers[f"anthropic-ratelimit-{name}-remaining"] = str(window.remaining)
                headers[f"anthropic-ratelimit-{name}-reset"] = f"{reset:%Y-%m-%dT%H:%M:%SZ}"
        return headers


def _anthropic_text(content: str | tuple[_AnthropicBlock, ...] | None) -> str:
    if isinstance(content, tuple):
        return "\n".join(block.text for block in content if block.type == "text")
    return content or ""


def _anthropic_messages(message: _AnthropicMessage) -> Iterator[Message]:
    """Results first, then text: clients put both into one user message."""
    blocks = message.content if isinstance(message.content, tuple) else ()
    results = [block for block in blocks if block.type == "tool_result"]
    for block in results:
        yield Message(
            role="tool", text=_anthropic_text(block.content), tool_call_id=block.tool_use_id
        )
    text = _anthropic_text(message.content)
    if text or not results:
        calls = (
            ToolCall(id=block.id, name=block.name, arguments=bytes(block.input).decode())
            for block in blocks
            if block.type == "tool_use"
        )
        yield Message(role=message.role, text=text, tool_calls=tuple(calls))


def _thinking_frames(reply: ScriptedReply, index: int) -> Iterator[ReplyFrame]:
    yield _block_start(index, {"type": "thinking", "thinking": "", "signature": ""})
    for piece in text_pieces(reply.think, reply.chunk):
        yield _block_delta(index, {"type": "thinking_delta", "thinking": piece})
    signature = {"type": "signature_delta", "signature": "scripted"}
    yield _anthropic_event("content_block_delta", {"index": index, "delta": signature})
    yield _anthropic_event("content_block_stop", {"index": index})


def _tool_use_frames(reply: ScriptedReply, index: int, tool: ToolCall) -> Iterator[ReplyFrame]:
    yield _block_start(index, {"type": "tool_use", "id": tool.id, "name": tool.name, "input": {}})
    nothing = {"type": "input_json_delta", "partial_json": ""}  # the vendor begins with this
    yield _anthropic_event("content_block_delta", {"index": index, "delta": nothing})
    for piece in text_pieces(tool.arguments, reply.chunk):
        yield _block_delta(index, {"type": "input_json_delta", "partial_json": piece})
    yield _anthropic_event("content_block_stop", {"index": index})


def _anthropic_envelope(reply: ScriptedReply) -> dict[str, object]:
    return {
        "id": f"msg_{reply.n}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _block_start(index: int, block: Mapping[str, object]) -> ReplyFrame:
    return _anthropic_event("content_block_start", {"index": index, "content_block": block})


def _block_delta(index: int, delta: Mapping[str, object]) -> ReplyFrame:
    return _anthropic_event("content_block_delta", {"index": index, "delta": delta}, kind="piece")


def _anthropic_event(
    name: str, data: Mapping[str, object], *, kind: Literal["open", "piece", "close"] = "open"
) -> ReplyFrame:
    encoded = msgspec.json.encode({"type": name, **data})
    return ReplyFrame(data=b"event: %s\ndata: %s\n\n" % (name.encode(), encoded), kind=kind)


def _anthropic_usage(usage: Usage, *, output: int) -> dict[str, int]:
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": output,
    }
