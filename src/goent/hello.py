"""Who has connected to the daemon, and what does it say of itself?"""

import os
import socket

import anyio
import msgspec
from anyio.abc import ByteStream

from goent.launch import PROTOCOL
from goent.peer import peer_of

HELLO_LIMIT = 256 * 1024


class ClientHello(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of every client."""

    goent: int
    version: str = ""
    kind: str = "control"
    cwd: str = "/"
    env: dict[str, str] = {}
    worker_pass: str = ""


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
    return peer_of(raw).uid == os.geteuid()
