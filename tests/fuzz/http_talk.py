"""HTTP by hand: what no library would send, and whatever comes back."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
from anyio.abc import SocketStream
from fuzzed_daemon import BOUND_S, to_the_end
from mutation import mutated

HUGE = b"x-huge: " + b"h" * 200_000 + b"\r\n"


@dataclass(frozen=True)
class Reply:
    status: int  # 0 if the connection was closed without one
    body: bytes


def post(path: str, headers: dict[str, str], body: bytes, length: str = "") -> bytes:
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    lines.append(f"content-length: {length or len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def talk(port: int, *pieces: bytes) -> Reply:
    """Send, say no more, and hear until the server closes."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        return await _conversation(stream, pieces)


async def _conversation(stream: SocketStream, pieces: Sequence[bytes]) -> Reply:
    try:
        for piece in pieces:
            await stream.send(piece)
    except (anyio.BrokenResourceError, OSError):
        pass  # put out before it was done; what it was told may still be there
    return read(await to_the_end(stream))


async def dawdle(port: int, *pieces: bytes) -> Reply:
    """Send, and then neither go on nor leave: the server has to end it."""
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        for piece in pieces:
            await stream.send(piece)
        heard = b""
        with anyio.fail_after(BOUND_S):
            try:
                while True:
                    heard += await stream.receive()
            except (anyio.EndOfStream, anyio.BrokenResourceError, OSError):
                return read(heard)


def read(heard: bytes) -> Reply:
    if not heard:
        return Reply(0, b"")
    head, _, body = heard.partition(b"\r\n\r\n")
    version, status, *_ = head.split(b"\r\n")[0].split(b" ")
    assert version == b"HTTP/1.1", heard[:200]
    return Reply(int(status), body)


def bad_requests(
    path: str, headers: dict[str, str], bodies: Sequence[bytes], chance: random.Random
) -> list[bytes]:
    """One request that went bad, in the pieces that it is sent in."""
    body = mutated(bodies, chance)
    match chance.randrange(7):
        case 0:
            whole = mutated([post(path, headers, body)], chance)
        case 1:
            whole = post(path, headers, body, length=str(chance.choice((-1, 0, 1, 10**9, "x"))))
        case 2:
            name = chance.choice(list(headers))
            changed = mutated([headers[name].encode()], chance).decode("latin-1")
            whole = post(path, {**headers, name: changed}, body)
        case 3:
            whole = post(mutated([path.encode()], chance).decode("latin-1"), headers, body)
        case 4:
            chunks = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body, b"x"))
            head = post(path, {**headers, "transfer-encoding": "chunked"}, b"")
            whole = head.replace(b"content-length: 0\r\n", b"") + mutated(
                [chunks + b"0\r\n\r\n"], chance
            )
        case 5:
            whole = post(path, headers, body) + mutated([post(path, headers, body)], chance)
        case _:
            whole = post(path, headers, body)
    cut = chance.randrange(len(whole) + 1)
    return [whole[:cut], whole[cut:]]
