"""The vendors' own SDKs as clients: one talk, asked streamed or whole, and what they understood.

They take seconds to import: only for tests that need them.
"""

from collections.abc import AsyncIterator, Sequence

import anthropic
import httpx2
import openai
from anthropic.types import MessageParam, ToolParam
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from goent.domain.types import Dialect, Value

SYSTEM = "Be brief."
PIXEL = "iVBORw0KGgo="
SCHEMA: dict[str, object] = {"type": "object", "properties": {"path": {"type": "string"}}}

OPENAI_TALK: Sequence[ChatCompletionMessageParam] = (
    {"role": "system", "content": SYSTEM},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look."},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ],
    },
    {
        "role": "assistant",
        "content": "I read.",
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}},
            {"id": "c2", "type": "function", "function": {"name": "read", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "A"},
    {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "B"}]},
    {"role": "user", "content": "Go on."},
)
OPENAI_TOOLS: Sequence[ChatCompletionToolParam] = (
    {
        "type": "function",
        "function": {"name": "read", "description": "Reads.", "parameters": SCHEMA},
    },
)
ANTHROPIC_TALK: Sequence[MessageParam] = (
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look."},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": PIXEL},
            },
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I read."},
            {"type": "tool_use", "id": "c1", "name": "read", "input": {}},
            {"type": "tool_use", "id": "c2", "name": "read", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "c1", "content": "A"},
            {
                "type": "tool_result",
                "tool_use_id": "c2",
                "content": [{"type": "text", "text": "B"}],
            },
            {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
        ],
    },
)
ANTHROPIC_TOOLS: Sequence[ToolParam] = (
    {"name": "read", "description": "Reads.", "input_schema": SCHEMA},
)


class Understood(Value, frozen=True, kw_only=True):
    """What an SDK made of an answer; a call is its id, its name and its input."""

    text: str
    calls: tuple[tuple[str, str, object], ...]
    stop: str | None
    input: int
    output: int
    cache_read: int
    reasoning: str = ""


class Canned(httpx2.AsyncBaseTransport):
    """Answers every request with these pieces, and keeps the last request's body."""

    def __init__(self, *pieces: bytes, status: int = 200, stream: bool = True) -> None:
        self._pieces = pieces
        self._status = status
        self._type = "text/event-stream" if stream else "application/json"
        self.asked = b""
        self.path = ""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked = await request.aread()
        self.path = request.url.path
        return httpx2.Response(
            self._status, headers={"content-type": self._type}, content=self._body()
        )

    async def _body(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


async def understood(
    dialect: Dialect,
    *,
    base_url: str = "http://127.0.0.1/v1",
    key: str = "sk-test",
    model: str = "m",
    stream: bool = True,
    transport: httpx2.AsyncBaseTransport | None = None,
) -> Understood:
    """Ask with the vendor's SDK. Without a transport, whoever is at the base URL."""
    ask = _ask_openai if dialect == "openai" else _ask_anthropic
    async with httpx2.AsyncClient(transport=transport, timeout=10, trust_env=False) as http:
        return await ask(http, base_url, key, model, stream=stream)


async def _ask_openai(
    http: httpx2.AsyncClient, base_url: str, key: str, model: str, *, stream: bool
) -> Understood:
    client = openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0, http_client=http)
    if stream:
        async with client.chat.completions.stream(
            model=model,
            messages=OPENAI_TALK,
            tools=OPENAI_TOOLS,
            max_completion_tokens=100,
            stop=["END"],
            stream_options={"include_usage": True},
        ) as events:
            answer = await events.get_final_completion()
    else:
        answer = await client.chat.completions.create(
            model=model, messages=OPENAI_TALK, tools=OPENAI_TOOLS, max_tokens=100, stop="END"
        )
    (choice,) = answer.choices
    usage = answer.usage
    assert usage
    details = usage.prompt_tokens_details
    calls: list[tuple[str, str, object]] = []
    for call in choice.message.tool_calls or ():
        assert call.type == "function"
        calls.append((call.id, call.function.name, call.function.arguments))
    return Understood(
        text=choice.message.content or "",
        calls=tuple(calls),
        stop=choice.finish_reason,
        input=usage.prompt_tokens,
        output=usage.completion_tokens,
        cache_read=(details and details.cached_tokens) or 0,
    )


async def _ask_anthropic(
    http: httpx2.AsyncClient, base_url: str, key: str, model: str, *, stream: bool
) -> Understood:
    """The SDK puts `/v1` into its paths itself."""
    root = base_url.removesuffix("/v1")
    client = anthropic.AsyncAnthropic(base_url=root, api_key=key, max_retries=0, http_client=http)
    if stream:
        async with client.messages.stream(
            model=model,
            max_tokens=100,
            system=SYSTEM,
            messages=ANTHROPIC_TALK,
            tools=ANTHROPIC_TOOLS,
            stop_sequences=["END"],
        ) as events:
            answer = await events.get_final_message()
    else:
        answer = await client.messages.create(
            model=model,
            max_tokens=100,
            system=SYSTEM,
            messages=ANTHROPIC_TALK,
            tools=ANTHROPIC_TOOLS,
            stop_sequences=["END"],
        )
    blocks = answer.content
    return Understood(
        text="".join(block.text for block in blocks if block.type == "text"),
        reasoning="".join(block.thinking for block in blocks if block.type == "thinking"),
        calls=tuple(
            (block.id, block.name, block.input) for block in blocks if block.type == "tool_use"
        ),
        stop=answer.stop_reason,
        input=answer.usage.input_tokens,
        output=answer.usage.output_tokens,
        cache_read=answer.usage.cache_read_input_tokens or 0,
    )
