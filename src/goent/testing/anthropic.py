"""How does a vendor of the Anthropic dialect speak? Messages, both directions."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from msgspec import Raw, Struct

from goent.domain.types import Usage
from goent.testing.conversation import Conversation, Message, ToolCall
from goent.testing.script import Limits, Stop
from goent.testing.wire import Frame, Refused, Reply, pieces

_ERRORS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_STOPS: dict[Stop, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}


class _Block(Struct):
    type: str = "text"
    text: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")
    tool_use_id: str = ""
    content: "str | tuple[_Block, ...] | None" = None


class _Message(Struct):
    role: Literal["user", "assistant"]
    content: str | tuple[_Block, ...]


class _Tool(Struct):
    name: str


class _Request(Struct):
    model: str
    max_tokens: int
    messages: tuple[_Message, ...]
    system: str | tuple[_Block, ...] = ""
    tools: tuple[_Tool, ...] = ()
    temperature: float | None = None
    stream: bool = False


_requests = msgspec.json.Decoder(_Request)


class Anthropic:
    """Messages."""

    endpoint = "/messages"
    tool_id = "toolu"

    def key(self, headers: Mapping[str, str]) -> str | None:
        return headers.get("x-api-key")

    def conversation(self, body: bytes) -> Conversation:
        try:
            request = _requests.decode(body)
        except msgspec.DecodeError as error:
            raise Refused(400, f"this is no Messages request: {error}") from error
        return Conversation(
            model=request.model,
            system=_text(request.system),
            messages=tuple(part for message in request.messages for part in _parts(message)),
            tools=tuple(tool.name for tool in request.tools),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            stream=request.stream,
        )

    def billable(self, usage: Usage) -> Usage:
        """Reasoning is not told apart from output."""
        return msgspec.structs.replace(usage, output=usage.output + usage.reasoning, reasoning=0)

    def stream(self, reply: Reply) -> Iterator[Frame]:
        start = {**_envelope(reply), "usage": _usage(reply.usage, output=1)}
        yield _event("message_start", {"message": start})
        yield _event("ping", {})
        index = 0
        if reply.think:
            yield from _thinking(reply, index)
            index += 1
        if reply.say:
            yield _start(index, {"type": "text", "text": ""})
            for piece in pieces(reply.say, reply.chunk):
                yield _piece(index, {"type": "text_delta", "text": piece})
            yield _event("content_block_stop", {"index": index})
            index += 1
        for number, tool in enumerate(reply.tools, index):
            yield from _tool_use(reply, number, tool)
        ending = {"stop_reason": _STOPS[reply.stop], "stop_sequence": None}
        usage = {"output_tokens": reply.usage.output}
        yield _event("message_delta", {"delta": ending, "usage": usage}, kind="close")
        yield _event("message_stop", {}, kind="close")

    def whole(self, reply: Reply) -> bytes:
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
            **_envelope(reply),
            "content": content,
            "stop_reason": _STOPS[reply.stop],
            "usage": _usage(reply.usage, output=reply.usage.output),
        }
        return msgspec.json.encode(message)

    def error(self, refused: Refused) -> bytes:
        fallback = "api_error" if refused.servers_fault else "invalid_request_error"
        kind = refused.code or _ERRORS.get(refused.status, fallback)
        return msgspec.json.encode(
            {"type": "error", "error": {"type": kind, "message": refused.message}}
        )

    def error_frame(self, refused: Refused) -> bytes:
        return b"event: error\ndata: " + self.error(refused) + b"\n\n"

    def limits(self, limits: Limits) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, window in (("requests", limits.requests), ("tokens", limits.tokens)):
            if window:
                reset = datetime.now(UTC) + timedelta(seconds=window.reset)
                headers[f"anthropic-ratelimit-{name}-limit"] = str(window.limit)
                headers[f"anthropic-ratelimit-{name}-remaining"] = str(window.remaining)
                headers[f"anthropic-ratelimit-{name}-reset"] = f"{reset:%Y-%m-%dT%H:%M:%SZ}"
        return headers


def _text(content: str | tuple[_Block, ...] | None) -> str:
    if isinstance(content, tuple):
        return "\n".join(block.text for block in content if block.type == "text")
    return content or ""


def _parts(message: _Message) -> Iterator[Message]:
    """Results first, then what was said: clients put both into one message of the user."""
    blocks = message.content if isinstance(message.content, tuple) else ()
    results = [block for block in blocks if block.type == "tool_result"]
    for block in results:
        yield Message(role="tool", text=_text(block.content), tool_call_id=block.tool_use_id)
    text = _text(message.content)
    if text or not results:
        calls = (
            ToolCall(id=block.id, name=block.name, arguments=bytes(block.input).decode())
            for block in blocks
            if block.type == "tool_use"
        )
        yield Message(role=message.role, text=text, tool_calls=tuple(calls))


def _thinking(reply: Reply, index: int) -> Iterator[Frame]:
    yield _start(index, {"type": "thinking", "thinking": "", "signature": ""})
    for piece in pieces(reply.think, reply.chunk):
        yield _piece(index, {"type": "thinking_delta", "thinking": piece})
    signature = {"type": "signature_delta", "signature": "scripted"}
    yield _event("content_block_delta", {"index": index, "delta": signature})
    yield _event("content_block_stop", {"index": index})


def _tool_use(reply: Reply, index: int, tool: ToolCall) -> Iterator[Frame]:
    yield _start(index, {"type": "tool_use", "id": tool.id, "name": tool.name, "input": {}})
    nothing = {"type": "input_json_delta", "partial_json": ""}  # the vendor begins with this
    yield _event("content_block_delta", {"index": index, "delta": nothing})
    for piece in pieces(tool.arguments, reply.chunk):
        yield _piece(index, {"type": "input_json_delta", "partial_json": piece})
    yield _event("content_block_stop", {"index": index})


def _envelope(reply: Reply) -> dict[str, object]:
    return {
        "id": f"msg_{reply.n}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
    }


def _start(index: int, block: Mapping[str, object]) -> Frame:
    return _event("content_block_start", {"index": index, "content_block": block})


def _piece(index: int, delta: Mapping[str, object]) -> Frame:
    return _event("content_block_delta", {"index": index, "delta": delta}, kind="piece")


def _event(
    name: str, data: Mapping[str, object], *, kind: Literal["open", "piece", "close"] = "open"
) -> Frame:
    encoded = msgspec.json.encode({"type": name, **data})
    return Frame(data=b"event: %s\ndata: %s\n\n" % (name.encode(), encoded), kind=kind)


def _usage(usage: Usage, *, output: int) -> dict[str, int]:
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": output,
    }
