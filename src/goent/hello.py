"""Who has connected to the daemon, and what does it say of itself?"""

import os
import socket
import struct

import anyio
import msgspec
from anyio.abc import ByteStream

from goent.launch import PROTOCOL

HELLO_LIMIT = 256 * 1024
LOCAL_PEERCRED = 0x001  # macOS; not in Python's socket module


class ClientHello(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of every client."""

    goent: int
    version: str = ""
    kind: str = "control"
    cwd: str = "/"
    env: dict[str, str] = {}


async def read_hello(stream: ByteStream) -> tuple[ClientHello, bytes]:
    received = b""
    while b"\n" not in received:
        if len(received) > HELLO_LIMIT:
            raise anyio.EndOfStream
        received += await stream.receive()
    line, _, rest = received.partition(b"\n")
    try:
        hello = msgspec.json.decode(line, type=ClientHello)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        await stream.send(msgspec.json.encode({"error": f"not a hello: {error}"}) + b"\n")
        raise anyio.EndOfStream from None
    if hello.goent != PROTOCOL:
        refusal = {"error": f"protocol {hello.goent} is not spoken here, only {PROTOCOL}"}
        await stream.send(msgspec.json.encode(refusal) + b"\n")
        raise anyio.EndOfStream
    return hello, rest


def is_same_user(raw: socket.socket) -> bool:
    """The socket's folder is ours alone; this is the second lock on the same door."""
    if hasattr(socket, "SO_PEERCRED"):
        packed = raw.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        _, uid, _ = struct.unpack("3i", packed)
    else:
        packed = raw.getsockopt(0, LOCAL_PEERCRED, 76)
        _, uid = struct.unpack_from("II", packed)
    return uid == os.geteuid()
