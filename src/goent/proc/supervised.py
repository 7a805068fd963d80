"""How does a child process end, whatever happens to us?

A worker is a tree: `opencode` starts shells in sessions of their own, shells start servers. So
whoever still carries the child's mark when the context closes is brought down, session leader
or not: end of input, then SIGTERM, then SIGKILL, every wait bounded and shielded from cancellation.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.lowlevel import checkpoint

from goent.domain.errors import WorkerCrashed
from goent.proc.marks import POLL, marked, marked_environment, send

GRACE = 2.0  # seconds between one way of asking and the next
DRAIN = 0.5  # for the last output, should somebody hold the pipe open whom no mark finds
STDERR_KEPT = 16 * 1024


class Supervised:
    """A running child. It exists only inside `supervised`."""

    def __init__(self, process: Process, mark: str, stderr: "Tail") -> None:
        assert process.stdin and process.stdout
        self.stdin: ByteSendStream = process.stdin
        self.output = Output(process.stdout)
        self.pid = process.pid
        self.mark = mark
        self._process = process
        self._stderr = stderr

    @property
    def stdout(self) -> ByteReceiveStream:
        return self.output

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def stderr(self) -> str:
        """The last words on standard error, so far."""
        return self._stderr.text

    async def wait(self) -> int:
        """The exit code, once there is one."""
        # asyncio's own wait() returns only when every pipe is closed, and a grandchild can hold
        # one open; the return code itself is set at once.
        while (code := self.returncode) is None:  # noqa: ASYNC110 (it announces nothing else)
            await anyio.sleep(POLL)
        return code


@asynccontextmanager
async def supervised(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    mark: str,
    grace: float = GRACE,
) -> AsyncGenerator[Supervised]:
    """Leaving the context leaves no process behind, however it is left."""
    with Tail(STDERR_KEPT) as stderr:
        process = await _start(command, cwd, marked_environment(env, mark), stderr)
        child = Supervised(process, mark, stderr)
        try:
            yield child
        finally:
            with anyio.CancelScope(shield=True):
                await _bring_down(child, grace)
                await child.output.end()


async def _start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], stderr: "Tail"
) -> Process:
    process: Process | None = None
    try:
        with anyio.CancelScope(shield=True):  # a child half started would be nobody's
            await stderr.listen()
            process = await anyio.open_process(
                command,
                cwd=cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr.writer,
                start_new_session=True,
            )
    except OSError as error:
        raise WorkerCrashed(f"cannot start {command[0]!r} in {str(cwd)!r}: {error}") from error
    finally:
        stderr.close_writer()
    assert process
    return process


async def _bring_down(child: Supervised, grace: float) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await child.stdin.aclose()
    with anyio.move_on_after(grace):
        await child.wait()  # only the child heard the end of its input
    for ask in (signal.SIGTERM, signal.SIGKILL):
        with anyio.move_on_after(grace):
            await _until_gone(child, ask)
            return


async def _until_gone(child: Supervised, ask: signal.Signals) -> None:
    told: set[int] = set()
    while living := _living(child):
        for pid in living - told:
            send(pid, ask)
        # SIGKILL is repeated: who forked in the last moment left a child that was not told.
        told = set() if ask is signal.SIGKILL else living
        await anyio.sleep(POLL)


def _living(child: Supervised) -> set[int]:
    own = {child.pid} if child.returncode is None else set[int]()
    # A process in the middle of exec has no environment to read: look twice before believing.
    return own | set(marked(child.mark)) or set(marked(child.mark))


class Output(ByteReceiveStream):
    """What a child says. It stays open until the child is gone, whoever closes it before."""

    def __init__(self, stream: ByteReceiveStream) -> None:
        self._stream = stream
        self._closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._closed:
            raise anyio.ClosedResourceError
        return await self._stream.receive(max_bytes)

    async def aclose(self) -> None:
        self._closed = True
        await checkpoint()

    async def end(self) -> None:
        """Read what nobody did: asyncio sees the end of a pipe, and lets go of it, only then."""
        with anyio.move_on_after(DRAIN), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await self._stream.receive()
        await self._stream.aclose()


class Tail(asyncio.Protocol):
    """Reads a pipe to its end, without a task of its own, and keeps the last of it."""

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self._bytes = bytearray()
        self._transport: asyncio.BaseTransport | None = None
        self._reader, self.writer = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close_writer()
        if self._transport:
            self._transport.close()
        else:
            os.close(self._reader)

    async def listen(self) -> None:
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(self._reader, "rb", buffering=0)
        self._transport, _ = await loop.connect_read_pipe(lambda: self, pipe)

    def close_writer(self) -> None:
        if self.writer >= 0:
            os.close(self.writer)
            self.writer = -1

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        if len(self._bytes) > 2 * self._kept:
            del self._bytes[: -self._kept]

    @property
    def text(self) -> str:
        return self._bytes[-self._kept :].decode(errors="replace").strip()
