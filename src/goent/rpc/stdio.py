"""How does a program speak the protocol on its own standard input and output?

While it does, those two belong to the protocol alone: a stray `print`, or a child process
that writes to what it inherited, ends up on standard error; a child that reads finds nothing.
"""

import os
import select
import stat
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.lowlevel import checkpoint

STDIN, STDOUT, STDERR = 0, 1, 2
PIPE_SIZE = 64 * 1024


@asynccontextmanager
async def stdio() -> AsyncGenerator[tuple[ByteReceiveStream, ByteSendStream]]:
    """Byte streams over this process's own pipes, terminal or files."""
    sys.stdout.flush()
    with (
        _taken(STDIN, os.open(os.devnull, os.O_RDONLY)) as source,
        _taken(STDOUT, os.dup(STDERR)) as sink,
        redirect_stdout(sys.stderr),
    ):
        async with (
            FdReceiveStream(_own(source, os.O_RDONLY)) as receive,
            FdSendStream(_own(sink, os.O_WRONLY)) as send,
        ):
            yield receive, send


class _Fd:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def _ready(self, wait: Callable[[int], Awaitable[None]]) -> None:
        if self._fd < 0:
            raise anyio.ClosedResourceError
        try:
            await wait(self._fd)
        except PermissionError:  # how epoll says that a file, or /dev/null, is always ready
            await checkpoint()

    async def aclose(self) -> None:
        if self._fd >= 0:
            anyio.notify_closing(self._fd)
            os.close(self._fd)
            self._fd = -1
        await checkpoint()


class FdReceiveStream(_Fd, ByteReceiveStream):
    """Reads from a file descriptor when there is something to read."""

    async def receive(self, max_bytes: int = 65536) -> bytes:
        while True:
            await self._ready(anyio.wait_readable)
            try:
                data = os.read(self._fd, max_bytes)
            except BlockingIOError:
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            if not data:
                raise anyio.EndOfStream
            return data


class FdSendStream(_Fd, ByteSendStream):
    """Writes to a file descriptor as much as it takes without blocking."""

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._portion = select.PIPE_BUF if os.get_blocking(fd) else PIPE_SIZE

    async def send(self, item: bytes) -> None:
        rest = memoryview(item)
        while rest:
            await self._ready(anyio.wait_writable)
            try:
                written = os.write(self._fd, rest[: self._portion])
            except BlockingIOError:
                continue
            except OSError as error:
                raise anyio.BrokenResourceError from error
            rest = rest[written:]


def _own(fd: int, flags: int) -> int:
    """The same file for us alone.

    Blocking or not is a mode that is shared with whoever else has the file open, standard error
    and the user's shell for two. Linux lets us open a pipe anew, then the mode is our own;
    otherwise the file stays as it is, and is written to in portions that cannot block.
    """
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        with suppress(OSError):
            return os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK)
    return os.dup(fd)


@contextmanager
def _taken(fd: int, substitute: int) -> Generator[int]:
    """The file behind `fd` under a number of its own; `fd` itself means something else."""
    original = os.dup(fd)
    os.dup2(substitute, fd)
    os.close(substitute)
    try:
        yield original
    finally:
        os.dup2(original, fd)
        os.close(original)
