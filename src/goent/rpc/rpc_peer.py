"""One end of a JSON-RPC 2.0 connection: requests and notifications both ways, in order.

Messages take effect in the order they arrive: a notification is handled before the next message,
a request has begun before the next notification is handled, and a reply reaches its caller after
the notifications that came before it. The rest is queued, and above a bound reading pauses.

There is one exception. A notification's handler that sends a request would wait for a reply that
is queued behind it. Until it returns, its replies are delivered immediately, requests begin
immediately (the peer may have to ask before it can answer), and the bound is wider.

Whatever the peer writes, the connection stays up: invalid lines are refused, and reading resumes.
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
from msgspec import Raw

from goent.domain.errors import GoentError
from goent.domain.input_mistakes import KEYS, explain_undecodable
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
    RpcMessage,
    decode_params,
)
from goent.system.line_splitter import MAX_LINE, LineSplitter, OversizedLine

HIGH_WATER = 256 * 1024


class Outbox:
    """Accepts lines without waiting, and sends them in order, all that are queued in one batch."""

    def __init__(self, stream: ByteSendStream) -> None:
        self._stream = stream
        self._lines: list[bytes] = []
        self._unsent = 0
        self._filled = anyio.Event()
        self._sent = anyio.Event()
        self.is_broken = False

    def put(self, line: bytes) -> None:
        """Never waits: callers that can wait call `wait_for_room` afterwards."""
        if self.is_broken:
            return
        if not self._lines:
            self._filled.set()
        self._lines.append(line)
        self._unsent += len(line)

    def put_if_room(self, line: bytes) -> None:
        """For lines that may be dropped: no caller depends on them."""
        if self._unsent + len(line) <= HIGH_WATER:
            self.put(line)

    @property
    def is_full(self) -> bool:
        return self._unsent > HIGH_WATER

    async def wait_for_room(self) -> None:
        """Waits until the peer has read enough of what it was sent, or is gone."""
        while self._unsent > HIGH_WATER:
            await self._sent.wait()

    async def wait_until_flushed(self) -> None:
        while self._unsent:
            await self._sent.wait()

    async def run(self) -> None:
        """Sends until the stream breaks; from then on, lines are dropped."""
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
        """Drops what is unsent, and wakes everyone who waits for it."""
        self.is_broken = True
        self._account(self._unsent)

    def _account(self, size: int) -> None:
        self._unsent -= size
        self._sent.set()
        self._sent = anyio.Event()


class PendingCall:
    """A request without a reply yet. `from_notification`: a notification's handler waits for it."""

    __slots__ = ("from_notification", "number", "outcome", "settled")

    def __init__(self, number: int, *, from_notification: bool) -> None:
        self.number = number
        self.from_notification = from_notification
        self.settled = anyio.Event()
        self.outcome: Raw | GoentError = ABSENT

    def settle(self, outcome: Raw | GoentError) -> None:
        self.outcome = outcome
        self.settled.set()


class PendingCalls:
    """The requests that wait for a reply, by their ids."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._open: dict[bytes, PendingCall] = {}
        self._lost_reason = ""

    def __len__(self) -> int:
        return len(self._open)

    def number(self) -> int:
        return next(self._numbers)

    def open(self, number: int, *, from_notification: bool) -> PendingCall:
        if self._lost_reason:
            raise ConnectionLost(self._lost_reason)
        call = PendingCall(number, from_notification=from_notification)
        self._open[b"%d" % call.number] = call
        return call

    def abandon(self, call: PendingCall) -> bool:
        """Forgets the call; True if it had no reply yet."""
        return self._open.pop(b"%d" % call.number, None) is not None

    def is_reply_for_notification(self, message: RpcMessage) -> bool:
        call = self._open.get(bytes(message.id))
        return call is not None and call.from_notification

    def settle(self, message: RpcMessage) -> None:
        """Delivers a reply; one that no call waits for is dropped."""
        call = self._open.pop(bytes(message.id), None)
        if call is not None:
            refused = bytes(message.error) not in (b"", b"null")
            call.settle(json_rpc.reply_error(message.error) if refused else message.result)

    def fail(self, number: bytes, reason: GoentError) -> bool:
        """Settles a call whose reply is unusable; False if there is no such call."""
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
        """Fails all open calls, and refuses new ones."""
        self.refuse_new(reason)
        while self._open:
            self._open.popitem()[1].settle(ConnectionLost(self._lost_reason))


MAX_QUEUED_BYTES = 1024 * 1024
MAX_QUEUED_MESSAGES = 4096
OVERTAKING_FACTOR = 16  # by which the bounds are wider while a handler waits for the peer

ErrorCallback = Callable[[str, Exception], None]

_turn: ContextVar[object] = ContextVar("turn")


class RpcHandler(Protocol):
    """Serves the requests and notifications of the peer."""

    async def request(self, method: str, params: Raw) -> object:
        """Returns the result or raises `RpcError`. Many run at a time, each in its own task.

        The reply is queued in the step in which this returns: after everything sent before, and
        before anything that a task started here will send.
        """
        ...

    async def notification(self, method: str, params: Raw) -> None:
        """Runs one at a time, in order; the peer's next messages wait for it."""
        ...


class Inbox:
    """The messages that were read but not handled yet, and the requests being served."""

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
        """No message follows; `ended` is set once all are handled."""
        self._has_ended = True
        self._arrived.set()

    async def wait_for_room(self) -> None:
        """Waits until enough is handled to read on."""
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
        while self._serving:
            await self._progressed.wait()

    @property
    def is_in_notification(self) -> bool:
        """Whether this code runs on behalf of the notification that is being handled."""
        return self._turn is not None and _turn.get(None) is self._turn

    def on_request_sent(self, tasks: TaskGroup | None, *, from_notification: bool) -> None:
        """Lets messages overtake if the handler of a notification now waits for a reply."""
        if from_notification and tasks is not None:
            self._overtaking = True
            overtaking = [entry for entry in self._queue if _may_overtake(entry[0])]
            self._queue = deque(entry for entry in self._queue if not _may_overtake(entry[0]))
            for message, size in overtaking:
                self._bytes -= size
                self._overtake(message, tasks)
        self._wake_waiters()

    async def run(self, tasks: TaskGroup) -> None:
        """Handles messages until `end` is called and the queue is empty."""
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
        # While we wait for a reply, a request being served may need it, and it may be queued
        # behind this message: waiting for that request to end could be a deadlock.
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
            busy = RpcError(TOO_MANY_REQUESTS, f"{self._serving} requests are being served already")
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
        await self._outbox.wait_for_room()  # unread replies count as requests being served
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
            internal = RpcError(INTERNAL_ERROR, f"internal error: {type(error).__name__}")
            return json_rpc.error_line(message.id, internal)

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
        too_many = len(self._queue) > MAX_QUEUED_MESSAGES * factor
        return too_many or self._bytes > MAX_QUEUED_BYTES * factor

    def _wake_waiters(self) -> None:
        self._progressed.set()
        self._progressed = anyio.Event()


def _may_overtake(message: RpcMessage) -> bool:
    is_request = message.method is not None and message.id is not ABSENT
    return is_request or message.method == CANCEL_REQUEST


FINISH_S = 2.0  # to finish open requests once the peer has hung up
CHUNK = 64 * 1024

T = TypeVar("T")

_log = logging.getLogger(__name__)


def _log_error(method: str, error: Exception) -> None:
    if isinstance(error, RpcError):  # the peer's mistake: a traceback would not help
        _log.warning("%.200r was refused: %.1000s", method, error)
    else:
        _log.error("%.200r failed", method, exc_info=error)


class Peer:
    """Our end of the connection. It works while `run` runs, and owns both streams."""

    cancels: ClassVar[str] = CANCEL_REQUEST  # the notification for an abandoned request

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
        """Serves until the peer hangs up, or `aclose`. Requests that have begun are answered."""
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
        """Sends what is queued, drops open requests, and hangs up."""
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
        """Sends a request and waits for its result. Raises `RpcError` if it is refused.

        It returns after the notifications that came before the reply have been handled.
        """
        raw = await self.request_raw(method, params, timeout=timeout)
        try:
            return msgspec.json.decode(raw, type=result)
        except (msgspec.DecodeError, RecursionError) as error:
            why = explain_undecodable(error, raw, result, KEYS)
            raise BadReply(f"cannot use the reply to {method!r}: {why}") from error

    async def request_raw(
        self,
        method: str,
        params: object,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (the peer is told when it is over)
    ) -> Raw:
        """As `request`, with the result undecoded."""
        number = self._calls.number()
        line = json_rpc.request_line(number, method, params)
        nested = self._inbox.is_in_notification
        call = self._calls.open(number, from_notification=nested)
        self._outbox.put(line)
        self._inbox.on_request_sent(self._tasks, from_notification=nested)
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
        """Sends a notification; waits only if the peer is slow to read."""
        if self._outbox.is_broken:
            raise ConnectionLost(f"cannot send {method!r}: the connection is closed")
        self._outbox.put(json_rpc.notification_line(method, params))
        await self._outbox.wait_for_room()

    def notify_now(self, method: str, params: object) -> None:
        """Sends a notification without waiting: for callers that check `is_crowded` themselves."""
        self._outbox.put(json_rpc.notification_line(method, params))

    @property
    def is_crowded(self) -> bool:
        """The peer is slow to read, and what is sent now piles up."""
        return self._outbox.is_full

    async def wait_for_room(self) -> None:
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
                # A peer that sends garbage and reads nothing must not make both sides wait forever.
                put = self._outbox.put_if_room if refusal.id == json_rpc.NULL else self._outbox.put
                put(json_rpc.error_line(refusal.id, refusal))

    def _refuse_long(self, line: OversizedLine) -> None:
        """Fails the call that waits for an oversized reply, or refuses an oversized request."""
        members = line.members
        if "method" in members or not self._calls.fail(
            members.get("id", b""), BadReply(f"cannot use the reply: {line.message}")
        ):
            raise json_rpc.InvalidMessage(INVALID_REQUEST, line.message, id=Raw(line.request_id))

    async def _write(self) -> None:
        await self._outbox.run()
        # The peer cannot be reached, but what it sent before may still be on its way.
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
