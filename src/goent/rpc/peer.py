"""How do two programs ask and tell each other things over a pair of byte streams?

JSON-RPC 2.0, one message per line, both sides equal. Whatever the other side writes, the
connection stays up: what cannot be understood is refused, and reading goes on.
"""

import logging
from typing import ClassVar, TypeVar

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, TaskGroup
from msgspec import Raw

from goent.lines import MAX_LINE, LineSplitter, TooLong
from goent.rpc import wire
from goent.rpc.calls import Calls
from goent.rpc.errors import INVALID_REQUEST, BadReply, ConnectionLost, RpcError
from goent.rpc.inbox import Handler, Inbox, OnError
from goent.rpc.outbox import Outbox

GRACE = 2.0  # seconds for what was begun to be finished, once the peer has said its last word
CHUNK = 64 * 1024

T = TypeVar("T")

_log = logging.getLogger(__name__)


def _report(method: str, error: Exception) -> None:
    if isinstance(error, RpcError):  # the peer's fault: ours has no place in it to be found
        _log.warning("%.200r was of no use: %.1000s", method, error)
    else:
        _log.error("%.200r failed", method, exc_info=error)


class Peer:
    """Our end of the connection. It works while `run` runs, and owns both streams."""

    cancels: ClassVar[str] = wire.CANCEL_REQUEST  # the notification for a request that we abandon

    def __init__(
        self,
        receive: ByteReceiveStream,
        send: ByteSendStream,
        handler: Handler,
        *,
        max_line: int = MAX_LINE,
        max_requests: int = 1024,
        on_error: OnError = _report,
    ) -> None:
        self._receive = receive
        self._send = send
        self._max_line = max_line
        self._outbox = Outbox(send)
        self._calls = Calls()
        self._inbox = Inbox(handler, self._calls, self._outbox, max_requests, on_error)
        self._tasks: TaskGroup | None = None
        self._reading = anyio.CancelScope()
        self._finishing = anyio.CancelScope()
        self._closed = anyio.Event()

    async def run(self) -> None:
        """Serve until the peer has no more to say, or `aclose`. Requests begun are answered."""
        if self._closed.is_set():
            return
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._write)
                tasks.start_soon(self._inbox.run, tasks)
                with self._reading:
                    await self._read(tasks)
                self._calls.refuse_new("the peer has hung up")
                self._finishing.deadline = anyio.current_time() + GRACE
                with self._finishing:
                    await self._finish()
                self._calls.close("the connection is closed")
                with anyio.move_on_after(GRACE):
                    await self._outbox.flushed()
                tasks.cancel_scope.cancel()
        finally:
            self._calls.close("the connection is closed")
            self._outbox.close()
            self._closed.set()
            await self._close_streams()

    async def aclose(self) -> None:
        """Say what is queued, drop what is under way, and hang up."""
        self._calls.refuse_new("we have hung up")
        self._reading.cancel()
        self._finishing.cancel()
        if self._tasks is None:
            await self._hang_up_before_the_start()
        else:
            await self._closed.wait()

    async def request(
        self,
        method: str,
        params: object,
        *,
        result: type[T],
        timeout: float | None = None,  # noqa: ASYNC109 (the peer is told when it is over)
    ) -> T:
        """Ask, and wait for the answer: an `RpcError` if it is a refusal.

        It returns after the notifications that came before the answer have been handled.
        """
        raw = await self.request_raw(method, params, timeout=timeout)
        try:
            return msgspec.json.decode(raw, type=result)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadReply(f"cannot use the reply to {method!r}: {error}") from error

    async def request_raw(
        self,
        method: str,
        params: object,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (the peer is told when it is over)
    ) -> Raw:
        """As `request`, with the result as it stands on the wire."""
        number = self._calls.number()
        line = wire.call(number, method, params)
        inside = self._inbox.asked_inside
        call = self._calls.open(number, inside=inside)
        self._outbox.put(line)
        self._inbox.reconsider(self._tasks, inside=inside)
        try:
            with anyio.fail_after(timeout):
                await self._outbox.room()
                await call.settled.wait()
        except TimeoutError:
            raise TimeoutError(f"no reply to {method!r} within {timeout} s") from None
        finally:
            if self._calls.abandon(call):
                notice = wire.CancelRequest(request_id=Raw(b"%d" % number))
                self._outbox.put(wire.notification(self.cancels, notice))
        if isinstance(call.outcome, Exception):
            raise call.outcome
        return call.outcome

    async def notify(self, method: str, params: object) -> None:
        """Tell; waits only if the peer is slow to read."""
        if self._outbox.broken:
            raise ConnectionLost(f"cannot send {method!r}: the connection is closed")
        self._outbox.put(wire.notification(method, params))
        if self._outbox.full:
            await self._outbox.room()

    def post(self, method: str, params: object) -> None:
        """Tell, and do not wait: for those who look at `crowded` themselves."""
        self._outbox.put(wire.notification(method, params))

    @property
    def crowded(self) -> bool:
        """The peer is slow to read: what is told now piles up."""
        return self._outbox.full

    async def room(self) -> None:
        """Wait until the peer has read enough, or is gone."""
        await self._outbox.room()

    async def _read(self, tasks: TaskGroup) -> None:
        splitter = LineSplitter(self._max_line)
        try:
            while True:
                chunk = await self._receive.receive(CHUNK)
                self._take(splitter.feed(chunk), tasks)
                await self._inbox.room()
                await self._outbox.room()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            self._take([splitter.rest()], tasks)

    def _take(self, lines: list[bytes | TooLong], tasks: TaskGroup) -> None:
        for line in lines:
            try:
                if isinstance(line, TooLong):
                    self._refuse_long(line)
                elif line and not line.isspace():
                    self._inbox.put(wire.read(line), len(line), tasks)
            except wire.Refused as refusal:
                # A peer that sends garbage and reads nothing must not make us both wait for ever.
                tell = self._outbox.offer if refusal.id == wire.NULL else self._outbox.put
                tell(wire.failure(refusal.id, refusal))

    def _refuse_long(self, line: TooLong) -> None:
        """Whoever waits for what it says, there or here, waits no longer."""
        members = line.members
        if "method" in members or not self._calls.fail(
            members.get("id", b""), BadReply(f"cannot use the reply: {line.message}")
        ):
            raise wire.Refused(INVALID_REQUEST, line.message, id=Raw(line.asks))

    async def _write(self) -> None:
        await self._outbox.run()
        # The peer hears no more, but what it said before may still be on its way.
        self._reading.deadline = anyio.current_time() + GRACE

    async def _finish(self) -> None:
        self._calls.fail_inside(ConnectionLost("the peer has hung up"))
        self._inbox.end()
        await self._inbox.ended.wait()
        self._calls.close("the peer has hung up")
        await self._inbox.idle()

    async def _hang_up_before_the_start(self) -> None:
        self._closed.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._outbox.run)
            with anyio.move_on_after(GRACE):
                await self._outbox.flushed()
            tasks.cancel_scope.cancel()
        self._outbox.close()
        await self._close_streams()

    async def _close_streams(self) -> None:
        with anyio.move_on_after(GRACE, shield=True):
            await self._send.aclose()
            await self._receive.aclose()
