"""Streams between processes of one machine."""

import os
import resource
import socket
import stat
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from anyio.lowlevel import checkpoint

from goent.rpc.byte_streams import LocalListener, LocalStream

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(20)]


@pytest.fixture
def ends() -> Generator[tuple[LocalStream, socket.socket]]:
    near, far = socket.socketpair()
    with near, far:
        yield LocalStream(near), far


async def _echo(stream: LocalStream) -> None:
    async with stream:
        while True:
            try:
                await stream.send(await stream.receive())
            except anyio.EndOfStream:
                return


async def test_what_comes_while_the_wait_is_cancelled_is_no_error_and_not_lost(
    ends: tuple[LocalStream, socket.socket],
) -> None:
    stream, far = ends
    async with anyio.create_task_group() as group:
        group.start_soon(stream.receive)
        await anyio.wait_all_tasks_blocked()
        far.send(b"just now")
        await checkpoint()  # the loop has seen it, and wakes us before the reader
        group.cancel_scope.cancel()
    assert await stream.receive() == b"just now"


async def test_much_is_sent_in_order_to_one_who_reads_slowly(tmp_path: Path) -> None:
    much = b"".join(b"%07d\n" % number for number in range(200_000))
    with LocalListener(tmp_path / "sock") as listener:
        assert stat.S_IMODE((tmp_path / "sock").stat().st_mode) == 0o600
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, _echo)
            end = socket.socket(socket.AF_UNIX)
            end.connect(str(tmp_path / "sock"))
            async with LocalStream(end) as stream:
                group.start_soon(_say_it_all, stream, much)
                heard = bytearray()
                while len(heard) < len(much):
                    heard += await stream.receive(1000)
                assert heard == much
            group.cancel_scope.cancel()


async def _say_it_all(stream: LocalStream, much: bytes) -> None:
    await stream.send(much)
    await stream.send_eof()


async def test_the_end_and_a_break_are_told_apart(
    ends: tuple[LocalStream, socket.socket],
) -> None:
    stream, far = ends
    far.send(b"last words")
    far.close()
    assert await stream.receive() == b"last words"
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    with pytest.raises(anyio.BrokenResourceError):
        await stream.send(b"too late")


async def test_who_waits_hears_that_we_closed(ends: tuple[LocalStream, socket.socket]) -> None:
    stream, _ = ends

    async def wait(*, task_status: TaskStatus[None]) -> None:
        task_status.started()
        with pytest.raises(anyio.ClosedResourceError):
            await stream.receive()

    async with anyio.create_task_group() as group:
        await group.start(wait)
        await anyio.wait_all_tasks_blocked()
        await stream.aclose()
    for late in (stream.receive(), stream.send(b"x"), stream.send_eof()):
        with pytest.raises(anyio.ClosedResourceError):
            await late


async def test_a_client_for_whom_there_is_no_descriptor_left_waits(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with (
        LocalListener(tmp_path / "sock") as listener,
        socket.socket(socket.AF_UNIX) as client,
    ):
        async with anyio.create_task_group() as group:
            group.start_soon(listener.serve, _echo)
            await anyio.wait_all_tasks_blocked()
            client.connect(str(tmp_path / "sock"))
            os.close(free := os.dup(0))
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, limits[1]))
            try:
                await anyio.sleep(0.05)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            client.send(b"still here")
            assert await anyio.to_thread.run_sync(client.recv, 100) == b"still here"
            group.cancel_scope.cancel()
