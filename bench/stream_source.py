"""A provider that streams at a given pace and costs next to nothing: `python -m bench.stream_source`.

The name of the model says how many chunks it says, and how many a second. Every chunk's text is the
moment of its birth, so that no two are alike and whoever reads them knows how late they come. The
first line of stdout is its `Door`; it ends with its stdin.
"""

import asyncio
import re
import sys
import time

from bench.stream_client import CHUNKED, Door, Pace
from msgspec import Struct, json

USAGE = b'"usage":{"prompt_tokens":100,"completion_tokens":%d,"total_tokens":%d}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n" + CHUNKED + b"\r\n\r\n"
NOT_HERE = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Asked(Struct):
    model: str


class Source(asyncio.Protocol):
    """One connection: requests come one after the other."""

    def __init__(self) -> None:
        self._request = b""
        self._pace = Pace(chunks=0)
        self._said = 0
        self._began = 0.0
        self._following: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._following:
            self._following.cancel()

    def data_received(self, data: bytes) -> None:
        self._request += data
        head, end, body = self._request.partition(b"\r\n\r\n")
        told = LENGTH.search(head)
        if not end or len(body) < int(told[1] if told else 0):
            return
        self._request = b""
        if not told:
            self._transport.write(NOT_HERE)
            return
        self._pace = Pace.named(json.decode(body, type=Asked).model)
        self._said, self._began = 0, time.monotonic()
        self._transport.write(HEAD)
        self._say()

    def _say(self) -> None:
        """The chunk that is due. The clock of the loop is the monotonic one."""
        if self._said == self._pace.chunks:
            self._finish()
            return
        self._event(_chunk(self._pace.model, b'{"content":" %.6f"}' % time.monotonic()))
        self._said += 1
        due = self._began + self._said / self._pace.per_s
        self._following = asyncio.get_running_loop().call_at(due, self._say)

    def _finish(self) -> None:
        said = self._pace.chunks
        usage = USAGE % (said, 100 + said)
        self._event(_chunk(self._pace.model, b"{}", b'"stop"'))
        self._event(_chunk(self._pace.model)[:-1] + b"," + usage + b"}")
        self._event(b"[DONE]")
        self._transport.write(b"0\r\n\r\n")

    def _event(self, data: bytes) -> None:
        event = b"data: " + data + b"\n\n"
        self._transport.write(b"%x\r\n%b\r\n" % (len(event), event))


def _chunk(model: str, delta: bytes = b"", finish: bytes = b"null") -> bytes:
    """As OpenAI's are; without a delta it has no choices."""
    choice = b'{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}' % (delta, finish)
    return (
        b'{"id":"chatcmpl-CZ7x1bench","object":"chat.completion.chunk","created":1763251200,'
        b'"model":"%b","service_tier":"default","system_fingerprint":"fp_560af6e559",'
        b'"choices":[%b]}' % (model.encode(), choice if delta else b"")
    )


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(Source, "127.0.0.1", 0)
    door = Door(port=server.sockets[0].getsockname()[1], path="/v1")
    print(json.encode(door).decode(), flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)


if __name__ == "__main__":
    asyncio.run(serve())
