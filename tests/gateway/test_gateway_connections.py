"""Connections to the gateway: bounded, and whoever has a token gets in."""

import os
import resource
import socket
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from fake_provider import Script, openai_pieces
from gateway_world import World

from goent.gateway import gateway, loopback_server
from goent.gateway.asgi import AsgiScope, Receive, Send, send_reply
from goent.gateway.loopback_server import (
    ConnectionLimits,
    ConnectionTable,
    LoopbackServer,
    PeerUsers,
)

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

MANY = 1500
NOBODY = 65534
BODY = b'{"model":"m","stream":true}'


@contextmanager
def _more_files() -> Generator[None]:
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(usual[1], 8192), usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


def _connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def _answered_in(world: World) -> float:
    """By a client that connects anew, as a worker's first call does."""
    world.provider.script = Script(openai_pieces())
    began = time.monotonic()
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as client:
        answer = await client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 200
    return time.monotonic() - began


async def test_idle_connections_are_bounded_and_a_worker_gets_in_all_the_same(world: World):
    with _more_files(), ExitStack() as held:
        before = _open_files()
        waits: list[float] = []
        for number in range(MANY):
            held.enter_context(_connect(world.gateway.port))
            if number % 100 == 99:
                waits.append(await _answered_in(world))
        ours = _open_files() - before - MANY
        assert ours <= ConnectionLimits().strangers + 100, "both ends are in this process"
        assert sorted(waits)[len(waits) // 2] < 0.5


async def test_a_worker_at_work_is_not_put_out_by_those_who_come(world: World):
    world.provider.script = script = Script(openai_pieces(), waits=1)
    async with world.client.stream(
        "POST", world.url(), content=BODY, headers=world.headers()
    ) as answer:
        await script.reached.wait()
        with _more_files(), ExitStack() as held:
            for _ in range(ConnectionLimits().strangers + 50):
                held.enter_context(_connect(world.gateway.port))
            await anyio.sleep(0.1)
            script.go_on.set()
            assert await answer.aread() == b"".join(script.pieces)


async def test_a_connection_that_was_used_with_a_token_stays_when_strangers_come(world: World):
    ports = set[object]()
    with _more_files(), ExitStack() as held:
        for _ in range(2):
            world.provider.script = Script(openai_pieces())
            answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
            ports.add(answer.extensions["network_stream"].get_extra_info("client_addr"))
            for _ in range(ConnectionLimits().strangers + 50):
                held.enter_context(_connect(world.gateway.port))
            await anyio.sleep(0.1)
    assert len(ports) == 1


async def test_a_head_has_less_time_than_a_body(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(loopback_server, "HEAD_S", 0.2)
    world.provider.script = Script(openai_pieces())
    head = (
        f"POST /glm/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{world.gateway.port}\r\n"
        f"authorization: Bearer {world.token}\r\nconnection: close\r\n"
        f"content-length: {len(BODY)}\r\n\r\n"
    ).encode()
    async with await anyio.connect_tcp("127.0.0.1", world.gateway.port) as slow:
        await slow.send(head + BODY[:5])
        await anyio.sleep(0.4)  # longer than a head may take
        await slow.send(BODY[5:])
        assert b"".join([piece async for piece in slow]).startswith(b"HTTP/1.1 200")
    async with await anyio.connect_tcp("127.0.0.1", world.gateway.port) as slow:
        await slow.send(head[:50])
        said = b"".join([piece async for piece in slow])
        assert b"408" in said and b"head of the request was not complete within 0.2 s" in said


async def test_a_long_head_is_refused_by_name(world: World):
    async with await anyio.connect_tcp("127.0.0.1", world.gateway.port) as stream:
        said = b""
        try:
            await stream.send(
                b"GET / HTTP/1.1\r\nx: " + b"x" * (2 * loopback_server.MAX_HEAD_BYTES)
            )
            async for piece in stream:
                said += piece
        except anyio.BrokenResourceError:
            pass
    assert said.startswith(b"HTTP/1.1 431") and b"longer than 65536 bytes" in said


async def test_one_key_has_so_many_requests_at_a_time(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gateway, "MAX_PARALLEL", 1)
    world.provider.script = script = Script(openai_pieces(), waits=1)
    async with world.client.stream("POST", world.url(), content=BODY, headers=world.headers()):
        await script.reached.wait()
        second = await world.client.get(world.url("models"), headers=world.headers())
        assert second.status_code == 429
        script.go_on.set()


class _Connection:
    def __init__(self, *, idle: bool = True, user: int | None = None) -> None:
        self.is_idle = idle
        self.user = user
        self.dropped = False

    def drop(self) -> None:
        self.dropped = True


def test_where_all_is_full_the_longest_unused_gives_way_and_nobody_at_work():
    table = ConnectionTable(ConnectionLimits(total=3, strangers=2))
    busy, idle, stranger = _Connection(idle=False), _Connection(), _Connection()
    for known in (busy, idle):
        table.add(known)
        table.authenticated(known)
    table.add(stranger)
    assert table.make_room() and stranger.dropped and not idle.dropped
    table.add(stranger := _Connection())
    table.authenticated(stranger)
    stranger.is_idle = False
    assert table.make_room() and idle.dropped and not busy.dropped
    table.add(late := _Connection(idle=False))
    table.authenticated(late)
    assert not table.make_room() and len(table) == 3


def test_other_users_are_counted_and_root_is_none_of_them():
    table = ConnectionTable(ConnectionLimits(other_users=1))
    assert table.accepts_user(None) and table.accepts_user(0) and table.accepts_user(os.geteuid())
    assert table.accepts_user(NOBODY)
    table.add(_Connection(user=NOBODY))
    assert not table.accepts_user(NOBODY) and table.accepts_user(os.geteuid())


def test_the_kernel_tells_whose_connection_it_is():
    users = PeerUsers()
    with socket.create_server(("127.0.0.1", 0)) as server, _connect(server.getsockname()[1]) as us:
        accepted, peer = server.accept()
        with accepted:
            found = users.find(peer, server.getsockname())
        assert found == (os.geteuid() if sys.platform == "linux" else None)
        assert peer == us.getsockname()
    assert users.find(("127.0.0.1", 1), ("127.0.0.1", 2)) is None
    users.close()
    assert users.find(("127.0.0.1", 1), ("127.0.0.1", 2)) is None


FLOOD = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
held, refused = [], 0
for _ in range(int(sys.argv[3])):
    one = socket.socket()
    one.connect(("127.0.0.1", int(sys.argv[1])))
    held.append(one)
for one in held:
    one.settimeout(20)
    try:
        refused += one.recv(1) == b""
    except ConnectionResetError:
        refused += 1
print(refused)
"""


async def test_another_user_gets_no_connection(world: World):
    if os.geteuid() or sys.platform != "linux":
        return  # only root can be two users, and only Linux tells them apart
    told: list[bytes] = []

    async def flood() -> None:
        command = [sys.executable, "-c", FLOOD, str(world.gateway.port), str(NOBODY), "300"]
        told.append((await anyio.run_process(command)).stdout)

    with _more_files():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(flood)
            while not told:
                assert await _answered_in(world) < 5
    assert told == [b"300\n"]


@asynccontextmanager
async def _server(app_limits: ConnectionLimits) -> AsyncGenerator[int]:
    async def app(_: AsgiScope, __: Receive, send: Send) -> None:
        await send_reply(send, 200, (), b"hi")

    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    server = LoopbackServer(app, app_limits)
    async with anyio.create_task_group() as tasks:
        with listener:
            tasks.start_soon(server.serve_on, listener)
            yield int(listener.getsockname()[1])
            server.stop()


@contextmanager
def _no_descriptor_left() -> Generator[socket.socket]:
    """A socket that is not connected yet, while nothing else can be opened."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as held:
        last = held.enter_context(socket.socket())
        highest = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        filler = last
        while filler.fileno() <= highest:  # until no hole below the highest is left
            filler = held.enter_context(socket.socket())
        resource.setrlimit(resource.RLIMIT_NOFILE, (filler.fileno() + 1, usual[1]))
        try:
            yield last
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, usual)


async def test_a_lack_of_descriptors_is_one_line_and_passes(caplog: pytest.LogCaptureFixture):
    """asyncio by itself logs a traceback for each of 2,048 tries, and all again in a second."""
    async with _server(ConnectionLimits()) as port:
        with ExitStack() as held:
            idle = [held.enter_context(_connect(port)) for _ in range(20)]
            await anyio.sleep(0.1)
            with _no_descriptor_left() as late:
                late.connect(("127.0.0.1", port))
                late.settimeout(20)
                late.send(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
                said = await anyio.to_thread.run_sync(late.recv, 1000)
            assert said.startswith(b"HTTP/1.1 200"), "the idle ones gave way"
            assert len(idle) == 20
    lines = [record for record in caplog.records if record.levelname != "DEBUG"]
    assert 1 <= len(lines) <= 3, lines
    assert not any(record.exc_info for record in lines)
