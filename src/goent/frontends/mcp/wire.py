"""MCP messages on a byte stream, one per line, as the SDK's session wants them.

The SDK says nothing to a line it cannot parse; here it is answered as JSON-RPC says, and the
connection stays up.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.streams.memory import (
    MemoryObjectReceiveStream,
    MemoryObjectSendStream,
)
from mcp import types
from mcp.shared.message import SessionMessage

MAX_LINE = 64 * 1024 * 1024

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def mcp_streams(
    receive: ByteReceiveStream, send: ByteSendStream
) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """The pair of streams that `Server.run` takes."""
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    writing = anyio.Lock()

    async def read() -> None:
        async with to_server:
            async for line in _lines(receive):
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    await write(_refusal(line))
                    continue
                await to_server.send(SessionMessage(message))

    async def write(line: bytes) -> None:
        async with writing:
            await send.send(line + b"\n")

    async def relay() -> None:
        async with from_server:
            async for message in from_server:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await write(text.encode())

    async with anyio.create_task_group() as group:
        group.start_soon(_until_closed, read)
        group.start_soon(_until_closed, relay)
        yield incoming, outgoing


async def _until_closed(copy: Callable[[], Awaitable[None]]) -> None:
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        await copy()


async def _lines(receive: ByteReceiveStream) -> AsyncIterator[bytes]:
    pending = b""
    with suppress(anyio.EndOfStream):
        while True:
            *lines, pending = (pending + await receive.receive(65536)).split(b"\n")
            for line in lines:
                if line.strip():
                    yield line
            if len(pending) > MAX_LINE:
                return
    if pending.strip():
        yield pending


def _refusal(line: bytes) -> bytes:
    try:
        msgspec.json.decode(line)
    except msgspec.DecodeError:
        error = {"code": -32700, "message": "Parse error"}
    else:
        error = {"code": -32600, "message": "Invalid Request"}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})
