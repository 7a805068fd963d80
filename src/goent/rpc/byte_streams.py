"""Byte streams over local sockets, standard input and output, and bytes read ahead.

anyio's own socket streams have a flaw: if a wait is cancelled in the same iteration of the event
loop in which data arrives, they wake it anyway, which the loop reports as an error.
"""

import errno
import os
import select
import socket
import stat
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, Self

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, ByteStream
from anyio.lowlevel import checkpoint


class PrefixedStream(ByteReceiveStream):
    """A stream whose first bytes were already read."""

    def __init__(self, first: bytes, stream: ByteReceiveStream) -> None:
        self._first = first
        self._stream = stream

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._first:
            piece, self._first = self._first[:max_bytes], self._first[max_bytes:]
            return piece
        return await self._stream.receive(max_bytes)

    async def aclose(self) -> None:
        await self._stream.aclose()


BACKLOG = 64
OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
ACCEPT_RETRY_S = 0.1  # until some descriptor may have been closed


class LocalStream(ByteStream):
    """One end of a connection."""

    def __init__(self, connected: socket.socket) -> None:
        connected.settimeout(0)
        self.socket = connected

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await checkpoint()
        while True:
            try:
                data = self.socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self.socket)
            except OSError as error:
                raise self._loss_error() from error
            else:
                if not data:
                    raise anyio.EndOfStream
                return data

    async def send(self, item: bytes) -> None:
        await checkpoint()
        rest = memoryview(item)
        while rest:
            try:
                sent = self.socket.send(rest)
            except BlockingIOError:
                await anyio.wait_writable(self.socket)
            except OSError as error:
                raise self._loss_error() from error
            else:
                rest = rest[sent:]

    async def send_eof(self) -> None:
        await checkpoint()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._loss_error() from error

    async def aclose(self) -> None:
        _close_socket(self.socket)
        await checkpoint()

    def _loss_error(self) -> Exception:
        ours = self.socket.fileno() < 0
        return anyio.ClosedResourceError() if ours else anyio.BrokenResourceError()


class LocalListener:
    """Accepts connections to a socket path from processes of the same user."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(0)
            self._socket.bind(str(path))
            path.chmod(0o600)
            self._socket.listen(BACKLOG)
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _close_socket(self._socket)

    async def serve(self, client: Callable[[LocalStream], Coroutine[Any, Any, None]]) -> None:
        """Runs `client` for each connection; cancelling ends all of them."""
        async with anyio.create_task_group() as group:
            while True:
                group.start_soon(client, await self._accept())

    async def _accept(self) -> LocalStream:
        while True:
            try:
                return LocalStream(self._socket.accept()[0])
            except BlockingIOError:
                await anyio.wait_readable(self._socket)
            except ConnectionAbortedError:
                await checkpoint()
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                await anyio.sleep(ACCEPT_RETRY_S)


def _close_socket(opened: socket.socket) -> None:
    if opened.fileno() >= 0:
        anyio.notify_closing(opened)
        opened.close()


STDIN, STDOUT, STDERR = 0, 1, 2
PIPE_SIZE = 64 * 1024


@asynccontextmanager
async def stdio() -> AsyncGenerator[tuple[ByteReceiveStream, ByteSendStream]]:
    """Byte streams over this process's standard input and output, for the protocol alone.

    A stray `print`, or a child process that writes to what it inherited, ends up on standard
    error meanwhile; a child that reads finds nothing.
    """
    sys.stdout.flush()
    with (
        _replaced_descriptor(STDIN, os.open(os.devnull, os.O_RDONLY)) as source,
        _replaced_descriptor(STDOUT, os.dup(STDERR)) as sink,
        redirect_stdout(sys.stderr),
    ):
        async with (
            FdReceiveStream(_private_copy(source, os.O_RDONLY)) as receive,
            FdSendStream(_private_copy(sink, os.O_WRONLY)) as send,
        ):
            yield receive, send


class _FdStream:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def _ready(self, wait: Callable[[int], Awaitable[None]]) -> None:
        if self._fd < 0:
            raise anyio.ClosedResourceError
        try:
            await wait(self._fd)
        except PermissionError:  # epoll's way to say that a file, or /dev/null, is always ready
            await checkpoint()

    async def aclose(self) -> None:
        if self._fd >= 0:
            anyio.notify_closing(self._fd)
            os.close(self._fd)
            self._fd = -1
        await checkpoint()


class FdReceiveStream(_FdStream, ByteReceiveStream):
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


class FdSendStream(_FdStream, ByteSendStream):
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


def _private_copy(fd: int, flags: int) -> int:
    """The same file with a mode of its own, if possible.

    Whether it blocks is a mode shared with everyone who has the file open, such as standard error
    and the user's shell. On Linux a pipe can be opened again with its own mode; otherwise the
    file keeps its mode, and is written to in portions that cannot block.
    """
    if stat.S_ISFIFO(os.fstat(fd).st_mode):
        with suppress(OSError):
            return os.open(f"/proc/self/fd/{fd}", flags | os.O_NONBLOCK)
    return os.dup(fd)


@contextmanager
def _replaced_descriptor(fd: int, substitute: int) -> Generator[int]:
    """Yields the file behind `fd` under another number; `fd` itself is the substitute meanwhile."""
    original = os.dup(fd)
    os.dup2(substitute, fd)
    os.close(substitute)
    try:
        yield original
    finally:
        os.dup2(original, fd)
        os.close(original)
