"""A client of ACP on the bare wire: it says what it likes, and remembers every line it hears, in order."""

from itertools import count
from typing import Any

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.streams.buffered import BufferedByteReceiveStream

Line = dict[str, Any]


class Wire:
    def __init__(self, receive: ByteReceiveStream, send: ByteSendStream) -> None:
        self.heard: list[Line] = []
        self._send = send
        self._lines = BufferedByteReceiveStream(receive)
        self._numbers = count(1)

    async def say(self, *lines: bytes | Line) -> None:
        raw = [line if isinstance(line, bytes) else msgspec.json.encode(line) for line in lines]
        await self._send.send(b"".join(line + b"\n" for line in raw))

    async def hear(self) -> Line:
        with anyio.fail_after(60):
            line = await self._lines.receive_until(b"\n", 1 << 26)
        self.heard.append(msgspec.json.decode(line, type=Line))
        return self.heard[-1]

    async def begin(self, method: str, **params: Any) -> int:
        number = next(self._numbers)
        await self.say({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        return number

    async def send(self, method: str, **params: Any) -> None:
        await self.say({"jsonrpc": "2.0", "method": method, "params": params})

    async def until(self, method: str) -> Line:
        """The next line that asks or tells this."""
        while (line := await self.hear()).get("method") != method:
            pass
        return line

    async def reply(self, number: int | str | None) -> Line:
        while (line := await self.hear()).get("id") != number or "method" in line:
            pass
        return line

    async def ask(self, method: str, **params: Any) -> Line:
        """The whole reply; what was heard before it is in `heard`."""
        return await self.reply(await self.begin(method, **params))

    async def result(self, method: str, **params: Any) -> Line:
        reply = await self.ask(method, **params)
        assert "result" in reply, reply
        return reply["result"]

    async def error(self, method: str, **params: Any) -> Line:
        reply = await self.ask(method, **params)
        assert "error" in reply, reply
        return reply["error"]
