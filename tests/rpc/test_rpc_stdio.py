import os
import pty
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

pytestmark = pytest.mark.anyio

AGENT = [sys.executable, str(Path(__file__).with_name("echo_agent.py"))]
ECHO = b'{"jsonrpc":"2.0","id":1,"method":"echo","params":["x"]}\n'
REPLY = b'{"jsonrpc":"2.0","id":1,"result":["x"]}\n'


@pytest.mark.spec("A01")
async def test_a_request_that_is_piped_in_is_answered_although_the_input_ends():
    with anyio.fail_after(10):
        done = await anyio.run_process(AGENT, input=ECHO)
    assert done.stdout == REPLY + b"after\n"
    assert b"a stray print\n" in done.stderr
    assert b"a stray write\n" in done.stderr


async def test_a_child_that_reads_finds_nothing():
    with anyio.fail_after(10):
        done = await anyio.run_process(AGENT, input=b'{"jsonrpc":"2.0","id":1,"method":"read"}\n')
    assert done.stdout == b'{"jsonrpc":"2.0","id":1,"result":""}\n' + b"after\n"


async def test_files_will_do(tmp_path: Path):
    requests, replies = tmp_path / "requests", tmp_path / "replies"
    requests.write_bytes(ECHO * 1000)
    with requests.open("rb") as source, replies.open("wb") as sink, anyio.fail_after(10):
        await anyio.run_process(AGENT, stdin=source.fileno(), stdout=sink.fileno())
    assert replies.read_bytes() == REPLY * 1000 + b"after\n"


async def test_no_input_at_all_is_the_end_of_it():
    with anyio.fail_after(10):
        done = await anyio.run_process(AGENT, stdin=subprocess.DEVNULL)
    assert done.stdout == b"after\n"


async def test_a_socket_will_do():
    ours, theirs = socket.socketpair()
    with ours, anyio.fail_after(10):
        async with await anyio.open_process(
            AGENT, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=None
        ) as process:
            theirs.close()
            ours.sendall(ECHO)
            ours.shutdown(socket.SHUT_WR)
            await process.wait()
        assert ours.recv(1000) == REPLY + b"after\n"


async def test_a_terminal_will_do():
    ours, theirs = pty.openpty()
    with anyio.fail_after(10):
        async with await anyio.open_process(
            AGENT, stdin=theirs, stdout=theirs, stderr=None
        ) as process:
            os.close(theirs)
            os.write(ours, ECHO)
            os.write(ours, b"\x04")  # what ^D is to a program
            await process.wait()
        shown = os.read(ours, 1000).replace(b"\r\n", b"\n")
        os.close(ours)
    assert shown.endswith(REPLY + b"after\n")


async def test_a_large_reply_passes_through_a_pipe_that_is_read_slowly():
    big = b'{"jsonrpc":"2.0","id":1,"method":"echo","params":["' + b"x" * 3_000_000 + b'"]}\n'
    with anyio.fail_after(10):
        done = await anyio.run_process(AGENT, input=big)
    assert len(done.stdout) > 3_000_000
