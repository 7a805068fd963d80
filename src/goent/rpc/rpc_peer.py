"""One end of a JSON-RPC connection: requests and notifications both ways, in order.

In the order it came, all of it: a notification is handled before the next message is looked
at, a request has begun before the next notification is handled, and a reply reaches whoever
waits for it after the notifications that came before it. What cannot be acted upon yet is
kept, and above a bound the reader is made to wait.

One thing must overtake: a notification's handler that itself asks the peer something would
wait for a reply that is queued behind it. Until it returns, replies to it are handed over at
once, requests begin at once (the peer may have to ask before it can answer), and the bound
is wider.

JSON-RPC 2.0, one message per line, both sides equal. Whatever the other side writes, the
connection stays up: what cannot be understood is refused, and reading goes on.
"""

import logging
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from itertools import count
from typing import ClassVar, Protocol, TypeVar

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, TaskGroup
from anyio.lowlevel import checkpoint
from msgspec import UNSET, Raw

from goent.domain.errors import GoentError
from goent.rpc import json_rpc
from goent.rpc.json_rpc import (
    ABSENT,
    CANCEL_REQUEST,
    INTERNAL_ERROR,
    INVALID_REQUEST,
    REQUEST_CANCELLED,
    TOO_MANY_REQUESTS,
    BadReply,
    ConnectionLost,
    RpcError,
    RpcErrorBody,
    RpcMessage,
    decode_params,
)
from goent.system.line_splitter import MAX_LINE, LineSplitter, OversizedLine

HIGH_WATER = 256 * 1024


class Outbox:
    """Lines are taken at once and sent in order, as many in one go as have gathered."""

    def __init__(self, stream: ByteSendStream) -> None:
        self._stream = stream
        self._lines: list[bytes] = []
        self._unsent = 0
        self._filled = anyio.Event()
        self._sent = anyio.Event()
        self.is_broken = False

    def put(self, line: bytes) -> None:
        """Never waits: whoever can wait calls `room` afterwards."""
        if self.is_broken:
            return
        if not self._lines:
            self._filled.set()
        self._lines.append(line)
        self._unsent += len(line)

    def put_if_room(self, line: bytes) -> None:
        """Put it if there is room: it is for nobody in particular, and no reason to wait."""
        if self._unsent + len(line) <= HIGH_WATER:
            self.put(line)

    @property
    def is_full(self) -> bool:
        return self._unsent > HIGH_WATER

    async def wait_for_room(self) -> None:
        """Wait until the peer has read enough of what it was sent."""
        while self._unsent > HIGH_WATER:
            await self._sent.wait()

    async def wait_until_flushed(self) -> None:
        while self._unsent:
            await self._sent.wait()

    async def run(self) -> None:
        """Send until the stream breaks; from then on, lines go nowhere."""
        try:
            while True:
                await self._filled.wait()
                self._filled = anyio.Event()
                batch = b"".join(self._lines)
                self._lines.clear()
                await self._stream.send(batch)
                self._account(len(batch))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            self.close()

    def close(self) -> None:
        """Nothing more is sent, and nobody waits for it."""
        self.is_broken = True
        self._account(self._unsent)

    def _account(self, size: int) -> None:
        self._unsent -= size
        self._sent.set()
        self._sent = anyio.Event()


class PendingCall:
    """One request under way. `inside` marks one that a notification's handler waits for."""

    __slots__ = ("from_notification", "number", "outcome", "settled")

    def __init__(self, number: int, *, inside: bool) -> None:
        self.number = number
        self.from_notification = inside
        self.settled = anyio.Event()
        self.outcome: Raw | GoentError = ABSENT

    def settle(self, outcome: Raw | GoentError) -> None:
        self.outcome = outcome
        self.settled.set()


class PendingCalls:
    """The replies that are still to come, by the id we gave the request."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: dict[bytes, PendingCall] = {}
        self._lost_reason = ""

    def __len__(self) -> int:
        return len(self._open)

    def number(self) -> int:
        return next(self._numbers)

    def open(self, number: int, *, inside: bool) -> PendingCall:
        if self._lost_reason:
            raise ConnectionLost(self._lost_reason)
        call = PendingCall(number, inside=inside)
        self._open[b"%d" % call.number] = call
        return call

    def abandon(self, call: PendingCall) -> bool:
        """Forget the call; True if its reply had not come."""
        return self._open.pop(b"%d" % call.number, None) is not None

    def is_reply_for_notification(self, message: RpcMessage) -> bool:
        call = self._open.get(bytes(message.id))
        return call is not None and call.from_notification

    def settle(self, message: RpcMessage) -> None:
        """A reply that nobody waits for is dropped: it came too late, or was never asked for."""
        call = self._open.pop(bytes(message.id), None)
        if call is not None:
            refused = bytes(message.error) not in (b"", b"null")
            call.settle(_reply_error(message.error) if refused else message.result)

    def fail(self, number: bytes, reason: GoentError) -> bool:
        """The reply has come and is of no use; False if nobody waits for it."""
        call = self._open.pop(number, None)
        if call is not None:
            call.settle(reason)
        return call is not None

    def fail_notification_calls(self, reason: GoentError) -> None:
        for key, call in list(self._open.items()):
            if call.from_notification:
                self._open.pop(key).settle(reason)

    def refuse_new(self, reason: str) -> None:
        self._lost_reason = self._lost_reason or reason

    def close(self, reason: str) -> None:
        """No reply can come any more, and no request can go."""
        self.refuse_new(reason)
        while self._open:
            self._open.popitem()[1].settle(ConnectionLost(self._lost_reason))


def _reply_error(error: Raw) -> GoentError:
    try:
        body = msgspec.json.decode(error, type=RpcErrorBody)
    except msgspec.DecodeError as cause:
        return BadReply(f"the peer refused in words of its own: {bytes(error)[:200]!r} ({cause})")
    return RpcError(body.code, body.message, None if body.data is UNSET else body.data)


MAX_QUEUED_BYTES = 1024 * 1024
MAX_QUEUED_MESSAGES = 4096
OVERTAKING_FACTOR = 16  # how much wider the bounds are while a handler waits for the peer

ErrorCallback = Callable[[str, Exception], None]

_turn: ContextVar[object] = ContextVar("turn")


class RpcHandler(Protocol):
    """What this peer does for the other one."""

    async def request(self, method: str, params: Raw) -> object:
        """The result; or raise `RpcError`. Many run at a time, each in its own task.

        The reply is queued in the step in which this returns: a task that was started just
        before cannot get a word in, and all that was said before goes out before.
        """
        ...

    async def notification(self, method: str, params: Raw) -> None:
        """One at a time, in order. As long as it waits, so does the peer."""
        ...


class Inbox:
    """Messages that were read and not yet acted upon, and the requests being served."""

    def __init__(
        self,
        handler: RpcHandler,
        calls: PendingCalls,
        outbox: Outbox,
        max_requests: int,
        on_error: ErrorCallback,
    ) -> None:
        self._handler = handler
        self._calls = calls
        self._outbox = outbox
        self._max_requests = max_requests
        self._on_error = on_error

        self._queue: deque[tuple[RpcMessage, int]] = deque()
        self._bytes = 0
        self._has_ended = False
        self.ended = anyio.Event()
        self._arrived = anyio.Event()
        self._progressed = anyio.Event()

        self._turn: object = None
        self._overtaking = False
        self._serving = 0
        self._scopes: dict[bytes, anyio.CancelScope] = {}

    def put(self, message: RpcMessage, size: int, tasks: TaskGroup) -> None:
        if message.method is None and self._calls.is_reply_for_notification(message):
            self._calls.settle(message)
        elif self._overtaking and _may_overtake(message):
            self._overtake(message, tasks)
        else:
            if not self._queue:
                self._arrived.set()
            self._queue.append((message, size))
            self._bytes += size

    def end(self) -> None:
        """Nothing more will come; `ended` says when all that came was acted upon."""
        self._has_ended = True
        self._arrived.set()

    async def wait_for_room(self) -> None:
        """Wait until enough was acted upon to read on."""
        while self._is_crowded(1):
            if self._overtaking:
                if self._is_crowded(OVERTAKING_FACTOR):
                    self._calls.fail_notification_calls(
                        RpcError(
                            INTERNAL_ERROR,
                            f"gave up on a reply behind {len(self._queue)} unhandled messages",
                        )
                    )
                else:
                    return
            await self._progressed.wait()

    async def wait_until_idle(self) -> None:
        """Wait until no request is being served."""
        while self._serving:
            await self._progressed.wait()

    @property
    def is_in_notification(self) -> bool:
        """Is this code running on behalf of the notification that is being handled?"""
        return self._turn is not None and _turn.get(None) is self._turn

    def on_request_sent(self, tasks: TaskGroup | None, *, inside: bool) -> None:
        """A request of ours is under way: whoever waits may now have to act without waiting."""
        if inside and tasks is not None:
            self._overtaking = True
            held = [entry for entry in self._queue if not _may_overtake(entry[0])]
            hurried = [entry for entry in self._queue if _may_overtake(entry[0])]
            self._queue = deque(held)
            for message, size in hurried:
                self._bytes -= size
                self._overtake(message, tasks)
        self._wake_waiters()

    async def run(self, tasks: TaskGroup) -> None:
        """Act upon what arrives until the end has come."""
        while True:
            while self._queue:
                message, size = self._queue.popleft()
                if message.method is None:
                    self._calls.settle(message)
                elif message.id is not ABSENT:
                    await self._begin_in_turn(message, tasks)
                elif message.method == CANCEL_REQUEST:
                    self._cancel(message)
                else:
                    await self._notify(message.method, message.params)
                self._bytes -= size
            self._wake_waiters()
            if self._has_ended:
                self.ended.set()
                return
            self._arrived = anyio.Event()
            await self._arrived.wait()

    async def _notify(self, method: str, params: Raw) -> None:
        self._turn = turn = object()
        _turn.set(turn)
        try:
            await self._handler.notification(method, params)
        except Exception as error:  # noqa: BLE001 (a notification has no reply to carry it)
            self._on_error(method, error)
        self._turn = None
        self._overtaking = False

    async def _begin_in_turn(self, message: RpcMessage, tasks: TaskGroup) -> None:
        # With a call of ours open, a request in service may need the reply that is queued
        # behind this one: then waiting for it to end could be for ever.
        while self._serving >= self._max_requests and not self._calls:
            await self._progressed.wait()
        self._begin(message, tasks)
        await checkpoint()  # its first step comes before whatever is next

    def _overtake(self, message: RpcMessage, tasks: TaskGroup) -> None:
        if message.id is ABSENT:
            self._cancel(message)
        else:
            self._begin(message, tasks)

    def _begin(self, message: RpcMessage, tasks: TaskGroup) -> None:
        if self._serving >= self._max_requests:
            busy = RpcError(TOO_MANY_REQUESTS, f"{self._serving} requests are under way already")
            self._outbox.put(json_rpc.error_line(message.id, busy))
            return
        self._serving += 1
        scope = self._scopes[bytes(message.id)] = anyio.CancelScope()
        tasks.start_soon(self._serve, message, scope)

    async def _serve(self, message: RpcMessage, scope: anyio.CancelScope) -> None:
        reply = b""
        with scope:
            reply = await self._reply(message.method or "", message)
        if not reply:
            reply = json_rpc.error_line(message.id, RpcError(REQUEST_CANCELLED, "cancelled"))
        self._outbox.put(reply)
        if self._scopes.get(bytes(message.id)) is scope:
            del self._scopes[bytes(message.id)]
        await self._outbox.wait_for_room()  # unread replies count as requests under way
        self._serving -= 1
        self._wake_waiters()

    async def _reply(self, method: str, message: RpcMessage) -> bytes:
        try:
            return json_rpc.result_line(
                message.id, await self._handler.request(method, message.params)
            )
        except RpcError as error:
            return json_rpc.error_line(message.id, error)
        except Exception as error:  # noqa: BLE001 (the peer learns that it failed, the log why)
            self._on_error(method, error)
            fault = RpcError(INTERNAL_ERROR, f"internal error: {type(error).__name__}")
            return json_rpc.error_line(message.id, fault)

    def _cancel(self, message: RpcMessage) -> None:
        try:
            wanted = decode_params(message.params, json_rpc.CancelParams).request_id
        except RpcError as error:
            self._on_error(CANCEL_REQUEST, error)
            return
        scope = self._scopes.get(bytes(wanted))
        if scope is not None:
            scope.cancel()

    def _is_crowded(self, factor: int) -> bool:
        return (
            self._bytes > MAX_QUEUED_BYTES * factor
            or len(self._queue) > MAX_QUEUED_MESSAGES * factor
        )

    def _wake_waiters(self) -> None:
        self._progressed.set()
        self._progressed = anyio.Event()


def _may_overtake(message: RpcMessage) -> bool:
    return message.method == CANCEL_REQUEST or (
        message.method is not None and message.id is not ABSENT
    )


FINISH_S = 2.0  # seconds for what was begun to be finished, once the peer has said its last word
CHUNK = 64 * 1024

T = TypeVar("T")

_log = logging.getLogger(__name__)


def _log_error(method: str, error: Exception) -> None:
    if isinstance(error, RpcError):  # the peer's fault: ours has no place in it to be found
        _log.warning("%.200r was of no use: %.1000s", method, error)
    else:
        _log.error("%.200r failed", method, exc_info=error)


class Peer:
    """Our end of the connection. It works while `run` runs, and owns both streams."""

    cancels: ClassVar[str] = (
        json_rpc.CANCEL_REQUEST
    )  # the notification for a request that we abandon

    def __init__(
        self,
        receive: ByteReceiveStream,
        send: ByteSendStream,
        handler: RpcHandler,
        *,
        max_line: int = MAX_LINE,
        max_requests: int = 1024,
        on_error: ErrorCallback = _log_error,
    ) -> None:
        self._receive = receive
        self._send = send
        self._max_line = max_line
        self._outbox = Outbox(send)
        self._calls = PendingCalls()
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
                self._finishing.deadline = anyio.current_time() + FINISH_S
                with self._finishing:
                    await self._finish()
                self._calls.close("the connection is closed")
                with anyio.move_on_after(FINISH_S):
                    await self._outbox.wait_until_flushed()
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
            await self._close_unstarted()
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
        line = json_rpc.request_line(number, method, params)
        inside = self._inbox.is_in_notification
        call = self._calls.open(number, inside=inside)
        self._outbox.put(line)
        self._inbox.on_request_sent(self._tasks, inside=inside)
        try:
            with anyio.fail_after(timeout):
                await self._outbox.wait_for_room()
                await call.settled.wait()
        except TimeoutError:
            raise TimeoutError(f"no reply to {method!r} within {timeout} s") from None
        finally:
            if self._calls.abandon(call):
                notice = json_rpc.CancelParams(request_id=Raw(b"%d" % number))
                self._outbox.put(json_rpc.notification_line(self.cancels, notice))
        if isinstance(call.outcome, Exception):
            raise call.outcome
        return call.outcome

    async def notify(self, method: str, params: object) -> None:
        """Tell; waits only if the peer is slow to read."""
        if self._outbox.is_broken:
            raise ConnectionLost(f"cannot send {method!r}: the connection is closed")
        self._outbox.put(json_rpc.notification_line(method, params))
        if self._outbox.is_full:
            await self._outbox.wait_for_room()

    def notify_now(self, method: str, params: object) -> None:
        """Tell, and do not wait: for those who look at `crowded` themselves."""
        self._outbox.put(json_rpc.notification_line(method, params))

    @property
    def is_crowded(self) -> bool:
        """The peer is slow to read: what is told now piles up."""
        return self._outbox.is_full

    async def wait_for_room(self) -> None:
        """Wait until the peer has read enough, or is gone."""
        await self._outbox.wait_for_room()

    async def _read(self, tasks: TaskGroup) -> None:
        splitter = LineSplitter(self._max_line)
        try:
            while True:
                chunk = await self._receive.receive(CHUNK)
                self._take(splitter.feed(chunk), tasks)
                await self._inbox.wait_for_room()
                await self._outbox.wait_for_room()
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
            self._take([splitter.finish()], tasks)

    def _take(self, lines: list[bytes | OversizedLine], tasks: TaskGroup) -> None:
        for line in lines:
            try:
                if isinstance(line, OversizedLine):
                    self._refuse_long(line)
                elif line and not line.isspace():
                    self._inbox.put(json_rpc.read_message(line), len(line), tasks)
            except json_rpc.InvalidMessage as refusal:
                # A peer that sends garbage and reads nothing must not make us both wait for ever.
                tell = self._outbox.put_if_room if refusal.id == json_rpc.NULL else self._outbox.put
                tell(json_rpc.error_line(refusal.id, refusal))

    def _refuse_long(self, line: OversizedLine) -> None:
        """Whoever waits for what it says, there or here, waits no longer."""
        members = line.members
        if "method" in members or not self._calls.fail(
            members.get("id", b""), BadReply(f"cannot use the reply: {line.message}")
        ):
            raise json_rpc.InvalidMessage(INVALID_REQUEST, line.message, id=Raw(line.request_id))

    async def _write(self) -> None:
        await self._outbox.run()
        # The peer hears no more, but what it said before may still be on its way.
        self._reading.deadline = anyio.current_time() + FINISH_S

    async def _finish(self) -> None:
        self._calls.fail_notification_calls(ConnectionLost("the peer has hung up"))
        self._inbox.end()
        await self._inbox.ended.wait()
        self._calls.close("the peer has hung up")
        await self._inbox.wait_until_idle()

    async def _close_unstarted(self) -> None:
        self._closed.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._outbox.run)
            with anyio.move_on_after(FINISH_S):
                await self._outbox.wait_until_flushed()
            tasks.cancel_scope.cancel()
        self._outbox.close()
        await self._close_streams()

    async def _close_streams(self) -> None:
        with anyio.move_on_after(FINISH_S, shield=True):
            await self._send.aclose()
            await self._receive.aclose()
