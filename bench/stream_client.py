"""Somebody who asks for streams and looks at the clock: `python -m bench.stream_client`.

An `Order` on stdin, the list of what was `Heard` on stdout. It does no more with a stream than keep
it, so that on a small machine the proxy between it and the source has the time it needs.
"""

import asyncio
import re
import sys
import time
from typing import Self

import anyio
import msgspec
from msgspec import Struct

CHUNKED = b"transfer-encoding: chunked"
LAST = b"0\r\n\r\n"
BORN = re.compile(rb'"content": *" ([\d.]+)"')
PATIENCE_S = 300.0


class Pace(Struct, frozen=True, kw_only=True):
    """What a model says, and how fast."""

    chunks: int
    per_s: int = 1000

    @property
    def model(self) -> str:
        return f"says-{self.chunks}-at-{self.per_s}"

    @classmethod
    def named(cls, model: str) -> Self:
        _, chunks, _, per_s = model.split("-")
        return cls(chunks=int(chunks), per_s=int(per_s))


class Door(Struct, frozen=True, kw_only=True):
    """Where models are called: the source itself, or a proxy before it."""

    port: int
    path: str
    key: str = "sk-bench"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.path}"

    def request(self, pace: Pace, prompt: str) -> bytes:
        body = msgspec.json.encode(
            {
                "model": pace.model,
                "messages": [{"role": "user", "content": prompt}],
                "stream": True,
                "stream_options": {"include_usage": True},
            }
        )
        head = (
            f"POST {self.path}/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{self.port}\r\n"
            f"authorization: Bearer {self.key}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


class Order(Struct, frozen=True, kw_only=True):
    """At every door in turn, so many calls one after the other on each of so many connections."""

    doors: tuple[Door, ...]
    pace: Pace
    at_once: int = 1
    times: int = 1
    prompt: str = "Say the time."


class Heard(Struct, frozen=True, kw_only=True):
    """One stream. Times are the machine's monotonic clock, the same in every process."""

    door: int
    asked: float
    first: float
    last: float
    born_first: float
    born_last: float
    chunks: int


class Ear(asyncio.Protocol):
    """One connection, on which one answer at a time is awaited."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._whole.done():
            self._whole.set_exception(exc or ConnectionError("closed before the end"))

    def ask(self, request: bytes) -> asyncio.Future[None]:
        self.first = 0.0
        self.pieces: list[bytes] = []
        self._whole = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._whole

    def data_received(self, data: bytes) -> None:
        self.pieces.append(data)
        if not self.first and b"data:" in data:
            self.first = time.monotonic()
        # The last few bytes may come by themselves.
        if (data if len(data) >= len(LAST) else b"".join(self.pieces[-4:])).endswith(LAST):
            self.last = time.monotonic()
            self._whole.set_result(None)


async def listen(order: Order) -> list[Heard]:
    heard: list[Heard] = []

    async def one() -> None:
        loop = asyncio.get_running_loop()
        ears = [
            (await loop.create_connection(Ear, "127.0.0.1", door.port))[1] for door in order.doors
        ]
        requests = [door.request(order.pace, order.prompt) for door in order.doors]
        for _ in range(order.times):
            for number, (ear, request) in enumerate(zip(ears, requests, strict=True)):
                asked = time.monotonic()
                await ear.ask(request)
                heard.append(_heard(number, asked, ear, order.pace))

    with anyio.fail_after(PATIENCE_S):
        async with anyio.create_task_group() as tasks:
            for _ in range(order.at_once):
                tasks.start_soon(one)
    return heard


def _heard(door: int, asked: float, ear: Ear, pace: Pace) -> Heard:
    said = b"".join(ear.pieces)
    born = [float(moment) for moment in BORN.findall(said)]
    if len(born) != pace.chunks or b"[DONE]" not in said:
        sys.exit(f"of {pace.chunks} chunks {len(born)} came: {said[:300]!r} … {said[-300:]!r}")
    return Heard(
        door=door,
        asked=asked,
        first=ear.first,
        last=ear.last,
        born_first=born[0],
        born_last=born[-1],
        chunks=len(born),
    )


if __name__ == "__main__":
    given = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    print(msgspec.json.encode(anyio.run(listen, given)).decode())
