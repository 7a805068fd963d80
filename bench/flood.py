"""Measures what idle connections to the gateway cost the daemon, in memory and in time.

They come from a process of the same user, which is the harder case: another user's are refused
before anything is kept of them.
"""

import resource
import socket
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import anyio
from bench.client import a_client
from bench.cost import Failed, resident
from bench.place import Place, stop_daemon
from bench.table import Row

CONNECTIONS = 1500
WARM = 50
WATCHED_S = 3.0
READY_S = 30.0


async def run(place: Place) -> list[Row]:
    await anyio.to_thread.run_sync(stop_daemon, place)
    async with a_client(place) as client:
        port = urlsplit(client.gateway).port
        if port is None:
            raise Failed(f"the gateway has no port: {client.gateway!r}")
        for _ in range(WARM):
            await _answer(port)
        before = most = resident(client.pid)
        latest = 0.0
        async with _flood(port):
            end = time.monotonic() + WATCHED_S
            while time.monotonic() < end:
                latest = max(latest, await _answer(port))
                most = max(most, resident(client.pid))
    name = f"{CONNECTIONS:,} idle connections to the gateway"
    return [
        Row(measure=f"{name}: memory added", unit="MB", ours=(most - before) / 1e6, at_most=20),
        Row(measure=f"{name}: latest answer meanwhile", unit="ms", ours=latest * 1e3, at_most=100),
    ]


async def _answer(port: int) -> float:
    """Seconds from connecting to the answer. Without a token it is short, and takes the same way."""
    began = time.monotonic()
    async with await anyio.connect_tcp("127.0.0.1", port) as stream:
        await stream.send(b"GET /goent-warm/models HTTP/1.1\r\nhost: 127.0.0.1:%d\r\n\r\n" % port)
        answer = await stream.receive()
    if not answer.startswith(b"HTTP/1.1 401"):
        raise Failed(f"the gateway answered {answer[:100]!r}")
    return time.monotonic() - began


@asynccontextmanager
async def _flood(port: int) -> AsyncGenerator[None]:
    """Opened while the answers are measured, and held until then."""
    command = [sys.executable, "-m", "bench.flood", str(port)]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdin and process.stdout
        yield
        with anyio.fail_after(READY_S):
            if (await process.stdout.receive()).strip() != b"%d" % CONNECTIONS:
                raise Failed("not all connections could be made")
        await process.stdin.aclose()


def _hold(port: int) -> None:
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
    print(len(held), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most_files, 8192), most_files))
    _hold(int(sys.argv[1]))
