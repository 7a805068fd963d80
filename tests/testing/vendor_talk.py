"""Requests as vendors' clients send them, and their answers taken apart."""

from collections.abc import Mapping, Sequence

import httpx2
import msgspec
from msgspec import UNSET, Struct, UnsetType

from goent.testing.scripted_server import ScriptedModels

Wire = Mapping[str, object]


class Event(Struct, frozen=True):
    """One server-sent event: its name, if it has one, and its data as it came."""

    name: str | None
    data: str

    def json(self) -> object:
        return msgspec.json.decode(self.data)


def events(text: str) -> list[Event]:
    assert text.endswith("\n\n")
    return [_event(block) for block in text.removesuffix("\n\n").split("\n\n")]


def _event(block: str) -> Event:
    fields = dict(line.split(": ", 1) for line in block.split("\n"))
    return Event(fields.get("event"), fields["data"])


def ask(prompt: str, *, model: str = "glm-4", stream: bool = True, **more: object) -> Wire:
    options = {"stream_options": {"include_usage": True}} if stream else {}
    return {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "stream": stream,
        **options,
        **more,
    }


def ask_claude(prompt: str, *, stream: bool = True, **more: object) -> Wire:
    return {
        "model": "claude-x",
        "max_tokens": 1000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": prompt}]}],
        "stream": stream,
        **more,
    }


async def post(
    server: ScriptedModels, provider: str, body: Wire, *, headers: Mapping[str, str] | None = None
) -> httpx2.Response:
    endpoint = {"openai": "chat/completions", "anthropic": "messages"}
    dialect = server.script.providers[provider].dialect
    async with httpx2.AsyncClient(timeout=10) as client:
        url = f"{server.base_url(provider)}/{endpoint[dialect]}"
        return await client.post(url, json=body, headers=headers or {})


class Function(Struct):
    name: str | None = None
    arguments: str = ""


class ToolDelta(Struct):
    index: int = 0
    id: str | None = None
    type: str | None = None
    function: Function = msgspec.field(default_factory=Function)


class Delta(Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: Sequence[ToolDelta] = ()


class Choice(Struct):
    index: int
    finish_reason: str | None
    delta: Delta = msgspec.field(default_factory=Delta)
    message: Delta = msgspec.field(default_factory=Delta)


class Completion(Struct, kw_only=True):
    """A chunk, or a whole completion, of the OpenAI dialect."""

    id: str
    kind: str = msgspec.field(name="object")
    created: int
    model: str
    choices: Sequence[Choice]
    usage: dict[str, object] | UnsetType | None = UNSET


def chunks(text: str) -> list[Completion]:
    """The chunks of a stream that ends as it should."""
    *parts, last = events(text)
    assert last.data == "[DONE]"
    return [msgspec.json.decode(part.data, type=Completion) for part in parts]


class Problem(Struct):
    message: str
    type: str
    code: str | None = None


class Trouble(Struct):
    """A vendor's error, in either shape."""

    error: Problem
    type: str | None = None


def trouble(response: httpx2.Response) -> Problem:
    return msgspec.json.decode(response.content, type=Trouble).error
