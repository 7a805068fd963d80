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

from goent.lines import LineSplitter, TooLong
from goent.rpc.errors import INVALID_REQUEST, PARSE_ERROR

CHUNK = 256 * 1024

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
                if isinstance(line, TooLong):
                    await write(_error(INVALID_REQUEST, line.message, line.asks))
                    continue
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


async def _lines(receive: ByteReceiveStream) -> AsyncIterator[bytes | TooLong]:
    splitter = LineSplitter()
    with suppress(anyio.EndOfStream):
        while True:
            for line in splitter.feed(await receive.receive(CHUNK)):
                if isinstance(line, TooLong) or line.strip():
                    yield line
    line = splitter.rest()
    if isinstance(line, TooLong) or line.strip():
        yield line


class _Identified(msgspec.Struct):
    id: str | int | float | None = None


def _refusal(line: bytes) -> bytes:
    """What is wrong with the line, under the id that it has if it has one."""
    try:
        line.decode()
        msgspec.json.decode(line)
    except RecursionError:
        return _error(PARSE_ERROR, "parse error: nested too deeply")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _error(PARSE_ERROR, f"parse error: {error}")
    try:
        number = msgspec.json.decode(line, type=_Identified).id
    except msgspec.ValidationError as error:
        return _error(INVALID_REQUEST, f"invalid request: {error}")
    return _error(
        INVALID_REQUEST, "invalid request: no JSON-RPC 2.0 message", msgspec.json.encode(number)
    )


def _error(code: int, message: str, number: bytes = b"null") -> bytes:
    error = {"code": code, "message": message}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": msgspec.Raw(number), "error": error})
