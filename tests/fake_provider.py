"""A provider of which every byte is scripted, on a real socket."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

import anyio
import msgspec
from anyio.abc import SocketAttribute, SocketStream
from anyio.streams.buffered import BufferedByteReceiveStream


@dataclass
class Seen:
    """A request as it came in."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Script:
    """An answer. `waits` stops before the piece of that index until `go_on` is set."""

    pieces: Sequence[bytes]
    status: int = 200
    content_type: str = "text/event-stream"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    chunked: bool = True
    breaks: bool = False
    waits: int | None = None
    go_on: anyio.Event = field(default_factory=anyio.Event)
    reached: anyio.Event = field(default_factory=anyio.Event)
    client_left: anyio.Event = field(default_factory=anyio.Event)

    def head(self) -> bytes:
        fields = {"content-type": self.content_type, **self.headers}
        if self.chunked:
            fields["transfer-encoding"] = "chunked"
        else:
            fields["content-length"] = str(sum(map(len, self.pieces)))
        lines = [f"HTTP/1.1 {self.status} X", *(f"{k}: {v}" for k, v in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode()

    def framed(self, piece: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(piece), piece) if self.chunked else piece


class FakeProvider:
    def __init__(self, port: int) -> None:
        self.base_url = f"http://127.0.0.1:{port}/v1"
        self.connections = 0
        self.seen: list[Seen] = []
        self.script = Script([b"data: [DONE]\n\n"])

    @classmethod
    @asynccontextmanager
    async def open(cls) -> "AsyncGenerator[FakeProvider]":
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        provider = cls(listener.extra(SocketAttribute.local_port))
        async with listener, anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, provider._serve)
            yield provider
            tasks.cancel_scope.cancel()

    async def _serve(self, stream: SocketStream) -> None:
        self.connections += 1
        reader = BufferedByteReceiveStream(stream)
        async with stream:
            with suppress(anyio.IncompleteRead, anyio.EndOfStream, anyio.BrokenResourceError):
                while await self._answer(stream, reader):
                    pass

    async def _answer(self, stream: SocketStream, reader: BufferedByteReceiveStream) -> bool:
        head = (await reader.receive_until(b"\r\n\r\n", 65536)).decode()
        first, *lines = head.split("\r\n")
        method, path, _ = first.split(" ")
        headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines)}
        body = await reader.receive_exactly(int(headers.get("content-length", "0")))
        self.seen.append(Seen(method, path, headers, body))
        script = self.script
        if script.waits == -1:  # no word, not even a status
            await self._wait(script, stream)
        await stream.send(script.head())
        for index, piece in enumerate(script.pieces):
            if script.waits == index:
                await self._wait(script, stream)
            await stream.send(script.framed(piece))
        if script.breaks:
            return False
        if script.chunked:
            await stream.send(b"0\r\n\r\n")
        return True

    async def _wait(self, script: Script, stream: SocketStream) -> None:
        script.reached.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, script, stream)
            await script.go_on.wait()
            tasks.cancel_scope.cancel()

    async def _watch(self, script: Script, stream: SocketStream) -> None:
        try:
            await stream.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            script.client_left.set()


def openai_pieces(text: str = "hello", *, finish: bool = True) -> list[bytes]:
    said = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    stop: dict[str, object] = {"index": 0, "delta": {}, "finish_reason": "stop"}
    usage = {
        "prompt_tokens": 120,
        "completion_tokens": 30,
        "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 100},
        "completion_tokens_details": {"reasoning_tokens": 10},
    }
    chunks: list[object] = [{"id": "c1", "choices": [said], "usage": None}]
    if finish:
        chunks += [{"id": "c1", "choices": [stop]}, {"id": "c1", "choices": [], "usage": usage}]
    return [*(b"data: %s\n\n" % msgspec.json.encode(c) for c in chunks), b"data: [DONE]\n\n"]


def anthropic_pieces() -> list[bytes]:
    usage = {
        "input_tokens": 500,
        "cache_creation_input_tokens": 300,
        "cache_read_input_tokens": 200,
        "output_tokens": 1,
    }
    events: dict[str, dict[str, object]] = {
        "message_start": {"message": {"id": "m1", "usage": usage}},
        "content_block_delta": {"index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        "message_delta": {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 100}},
        "message_stop": {},
    }
    return [
        b"event: %s\ndata: %s\n\n" % (name.encode(), msgspec.json.encode({"type": name, **event}))
        for name, event in events.items()
    ]
