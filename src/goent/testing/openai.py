"""How does a vendor of the OpenAI dialect speak? Chat Completions, both directions."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from goent.domain.types import Usage
from goent.testing.conversation import Conversation, Message, ToolCall
from goent.testing.script import Limits
from goent.testing.wire import Frame, Refused, Reply, pieces

_ERRORS = {
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "insufficient_quota"),
    404: ("invalid_request_error", "model_not_found"),
    429: ("requests", "rate_limit_exceeded"),
}


class _Part(Struct):
    type: str = "text"
    text: str = ""


class _Function(Struct):
    name: str
    arguments: str = ""


class _ToolCall(Struct):
    id: str
    function: _Function


class _Message(Struct):
    role: str
    content: str | tuple[_Part, ...] | None = None
    tool_calls: tuple[_ToolCall, ...] | None = None
    tool_call_id: str | None = None


class _Tool(Struct):
    function: _Function


class _StreamOptions(Struct):
    include_usage: bool = False


class _Request(Struct):
    model: str
    messages: tuple[_Message, ...]
    tools: tuple[_Tool, ...] = ()
    max_tokens: int | None = None
    temperature: float | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None


_requests = msgspec.json.Decoder(_Request)


class OpenAI:
    """Chat Completions."""

    endpoint = "/chat/completions"
    tool_id = "call"

    def key(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return token if scheme.lower() == "bearer" else None

    def conversation(self, body: bytes) -> Conversation:
        try:
            request = _requests.decode(body)
        except msgspec.DecodeError as error:
            raise Refused(400, f"this is no Chat Completions request: {error}") from error
        systems = ("system", "developer")
        return Conversation(
            model=request.model,
            system="\n".join(_text(m) for m in request.messages if m.role in systems),
            messages=tuple(_message(m) for m in request.messages if m.role not in systems),
            tools=tuple(tool.function.name for tool in request.tools),
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            stream=request.stream,
            stream_usage=bool(request.stream_options and request.stream_options.include_usage),
        )

    def billable(self, usage: Usage) -> Usage:
        """Writing the cache is not told apart from input."""
        return msgspec.structs.replace(usage, input=usage.input + usage.cache_write, cache_write=0)

    def stream(self, reply: Reply) -> Iterator[Frame]:
        yield _delta(reply, "open", {"role": "assistant", "content": ""})
        for piece in pieces(reply.think, reply.chunk):
            yield _delta(reply, "piece", {"reasoning_content": piece})
        for piece in pieces(reply.say, reply.chunk):
            yield _delta(reply, "piece", {"content": piece})
        for index, tool in enumerate(reply.tools):
            head = {"index": index, **_tool_call(tool, arguments="")}
            yield _delta(reply, "open", {"tool_calls": [head]})
            for piece in pieces(tool.arguments, reply.chunk):
                more = {"index": index, "function": {"arguments": piece}}
                yield _delta(reply, "piece", {"tool_calls": [more]})
        yield _chunk(reply, "close", [{"index": 0, "delta": {}, "finish_reason": reply.stop}])
        if reply.stream_usage:
            yield _chunk(reply, "close", [], usage=_usage(reply.usage))
        yield Frame(data=b"data: [DONE]\n\n", kind="close")

    def whole(self, reply: Reply) -> bytes:
        message: dict[str, object] = {"role": "assistant", "content": reply.say or None}
        if reply.think:
            message["reasoning_content"] = reply.think
        if reply.tools:
            message["tool_calls"] = [_tool_call(t, arguments=t.arguments) for t in reply.tools]
        choice = {"index": 0, "message": message, "finish_reason": reply.stop}
        head = _head(reply, "chat.completion")
        return msgspec.json.encode({**head, "choices": [choice], "usage": _usage(reply.usage)})

    def error(self, refused: Refused) -> bytes:
        fallback = "server_error" if refused.servers_fault else "invalid_request_error"
        kind, code = _ERRORS.get(refused.status, (fallback, None))
        error = {
            "message": refused.message,
            "type": kind,
            "param": None,
            "code": refused.code or code,
        }
        return msgspec.json.encode({"error": error})

    def error_frame(self, refused: Refused) -> bytes:
        return b"data: " + self.error(refused) + b"\n\n"

    def limits(self, limits: Limits) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, window in (("requests", limits.requests), ("tokens", limits.tokens)):
            if window:
                headers[f"x-ratelimit-limit-{name}"] = str(window.limit)
                headers[f"x-ratelimit-remaining-{name}"] = str(window.remaining)
                headers[f"x-ratelimit-reset-{name}"] = f"{window.reset:g}s"
        return headers


def _text(message: _Message) -> str:
    if isinstance(message.content, tuple):
        return "".join(part.text for part in message.content)
    return message.content or ""


def _message(message: _Message) -> Message:
    if message.role not in ("user", "assistant", "tool"):
        raise Refused(400, f"{message.role!r} is no role: use system, user, assistant or tool")
    calls = (
        ToolCall(id=call.id, name=call.function.name, arguments=call.function.arguments)
        for call in message.tool_calls or ()
    )
    return Message(
        role=message.role,
        text=_text(message),
        tool_calls=tuple(calls),
        tool_call_id=message.tool_call_id,
    )


def _tool_call(tool: ToolCall, *, arguments: str) -> dict[str, object]:
    function = {"name": tool.name, "arguments": arguments}
    return {"id": tool.id, "type": "function", "function": function}


def _head(reply: Reply, kind: str) -> dict[str, object]:
    return {
        "id": f"chatcmpl-{reply.n}",
        "object": kind,
        "created": int(time.time()),
        "model": reply.model,
    }


def _delta(reply: Reply, kind: Literal["open", "piece"], delta: Mapping[str, object]) -> Frame:
    return _chunk(reply, kind, [{"index": 0, "delta": delta, "finish_reason": None}])


def _chunk(
    reply: Reply,
    kind: Literal["open", "piece", "close"],
    choices: Sequence[Mapping[str, object]],
    usage: Mapping[str, object] | None = None,
) -> Frame:
    chunk = {**_head(reply, "chat.completion.chunk"), "choices": choices}
    if reply.stream_usage:
        chunk["usage"] = usage
    return Frame(data=b"data: " + msgspec.json.encode(chunk) + b"\n\n", kind=kind)


def _usage(usage: Usage) -> dict[str, object]:
    prompt = usage.input + usage.cache_read
    completion = usage.output + usage.reasoning
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
