"""How do processes of one machine speak with each other? Over sockets in the file system.

anyio's own streams for these would do but for one thing: if a wait is cancelled in the same turn of
the event loop in which something arrives, they try to wake it, and that is an error of the loop.
"""

import errno
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self

import anyio
from anyio.abc import ByteStream
from anyio.lowlevel import checkpoint

BACKLOG = 64
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
NO_ROOM_S = 0.1  # until somebody may have closed something


class LocalStream(ByteStream):
    """One end of a connection."""

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(0)
        self.socket = end

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await checkpoint()
        while True:
            try:
                data = self.socket.recv(max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self.socket)
            except OSError as error:
                raise self._lost() from error
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
                raise self._lost() from error
            else:
                rest = rest[sent:]

    async def send_eof(self) -> None:
        await checkpoint()
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._lost() from error

    async def aclose(self) -> None:
        _close(self.socket)
        await checkpoint()

    def _lost(self) -> Exception:
        ours = self.socket.fileno() < 0
        return anyio.ClosedResourceError() if ours else anyio.BrokenResourceError()


class LocalListener:
    """Takes in whoever of this user connects to a path."""

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
        _close(self._socket)

    async def serve(self, client: Callable[[LocalStream], Coroutine[Any, Any, None]]) -> None:
        """Until it is cancelled, and with it every client's conversation."""
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
                if error.errno not in NO_ROOM:
                    raise
                await anyio.sleep(NO_ROOM_S)


def _close(held: socket.socket) -> None:
    if held.fileno() >= 0:
        anyio.notify_closing(held)
        held.close()
