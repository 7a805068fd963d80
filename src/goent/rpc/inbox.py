"""In which order is what comes in acted upon?

In the order it came, all of it: a notification is handled before the next message is looked
at, a request has begun before the next notification is handled, and a reply reaches whoever
waits for it after the notifications that came before it. What cannot be acted upon yet is
kept, and above a bound the reader is made to wait.

One thing must overtake: a notification's handler that itself asks the peer something would
wait for a reply that is queued behind it. Until it returns, replies to it are handed over at
once, requests begin at once (the peer may have to ask before it can answer), and the bound
is wider.
"""

from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from typing import Protocol

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint
from msgspec import Raw

from goent.rpc import wire
from goent.rpc.calls import Calls
from goent.rpc.errors import (
    INTERNAL_ERROR,
    REQUEST_CANCELLED,
    TOO_MANY_REQUESTS,
    RpcError,
    decode_params,
)
from goent.rpc.outbox import Outbox
from goent.rpc.wire import ABSENT, CANCEL_REQUEST, Envelope

MAX_BYTES = 1024 * 1024
MAX_MESSAGES = 4096
OVERTAKING = 16  # how much wider the bounds are while a handler waits for the peer

OnError = Callable[[str, Exception], None]

_turn: ContextVar[object] = ContextVar("turn")


class Handler(Protocol):
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
        self, handler: Handler, calls: Calls, outbox: Outbox, max_requests: int, on_error: OnError
    ) -> None:
        self._handler = handler
        self._calls = calls
        self._outbox = outbox
        self._max_requests = max_requests
        self._on_error = on_error

        self._queue: deque[tuple[Envelope, int]] = deque()
        self._bytes = 0
        self._last = False
        self.ended = anyio.Event()
        self._arrived = anyio.Event()
        self._eased = anyio.Event()

        self._turn: object = None
        self._overtaking = False
        self._serving = 0
        self._scopes: dict[bytes, anyio.CancelScope] = {}

    def put(self, message: Envelope, size: int, tasks: TaskGroup) -> None:
        if message.method is None and self._calls.waits_inside(message):
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
        self._last = True
        self._arrived.set()

    async def room(self) -> None:
        """Wait until enough was acted upon to read on."""
        while self._crowded(1):
            if self._overtaking:
                if self._crowded(OVERTAKING):
                    self._calls.fail_inside(
                        RpcError(
                            INTERNAL_ERROR,
                            f"gave up on a reply behind {len(self._queue)} unhandled messages",
                        )
                    )
                else:
                    return
            await self._eased.wait()

    async def idle(self) -> None:
        """Wait until no request is being served."""
        while self._serving:
            await self._eased.wait()

    @property
    def asked_inside(self) -> bool:
        """Is this code running on behalf of the notification that is being handled?"""
        return self._turn is not None and _turn.get(None) is self._turn

    def reconsider(self, tasks: TaskGroup | None, *, inside: bool) -> None:
        """A request of ours is under way: whoever waits may now have to act without waiting."""
        if inside and tasks is not None:
            self._overtaking = True
            held = [entry for entry in self._queue if not _may_overtake(entry[0])]
            hurried = [entry for entry in self._queue if _may_overtake(entry[0])]
            self._queue = deque(held)
            for message, size in hurried:
                self._bytes -= size
                self._overtake(message, tasks)
        self._ease()

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
            self._ease()
            if self._last:
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

    async def _begin_in_turn(self, message: Envelope, tasks: TaskGroup) -> None:
        # With a call of ours open, a request in service may need the reply that is queued
        # behind this one: then waiting for it to end could be for ever.
        while self._serving >= self._max_requests and not self._calls:
            await self._eased.wait()
        self._begin(message, tasks)
        await checkpoint()  # its first step comes before whatever is next

    def _overtake(self, message: Envelope, tasks: TaskGroup) -> None:
        if message.id is ABSENT:
            self._cancel(message)
        else:
            self._begin(message, tasks)

    def _begin(self, message: Envelope, tasks: TaskGroup) -> None:
        if self._serving >= self._max_requests:
            busy = RpcError(TOO_MANY_REQUESTS, f"{self._serving} requests are under way already")
            self._outbox.put(wire.failure(message.id, busy))
            return
        self._serving += 1
        scope = self._scopes[bytes(message.id)] = anyio.CancelScope()
        tasks.start_soon(self._serve, message, scope)

    async def _serve(self, message: Envelope, scope: anyio.CancelScope) -> None:
        reply = b""
        with scope:
            reply = await self._reply(message.method or "", message)
        if not reply:
            reply = wire.failure(message.id, RpcError(REQUEST_CANCELLED, "cancelled"))
        self._outbox.put(reply)
        if self._scopes.get(bytes(message.id)) is scope:
            del self._scopes[bytes(message.id)]
        await self._outbox.room()  # unread replies count as requests under way
        self._serving -= 1
        self._ease()

    async def _reply(self, method: str, message: Envelope) -> bytes:
        try:
            return wire.result(message.id, await self._handler.request(method, message.params))
        except RpcError as error:
            return wire.failure(message.id, error)
        except Exception as error:  # noqa: BLE001 (the peer learns that it failed, the log why)
            self._on_error(method, error)
            fault = RpcError(INTERNAL_ERROR, f"internal error: {type(error).__name__}")
            return wire.failure(message.id, fault)

    def _cancel(self, message: Envelope) -> None:
        try:
            wanted = decode_params(message.params, wire.CancelRequest).request_id
        except RpcError as error:
            self._on_error(CANCEL_REQUEST, error)
            return
        scope = self._scopes.get(bytes(wanted))
        if scope is not None:
            scope.cancel()

    def _crowded(self, factor: int) -> bool:
        return self._bytes > MAX_BYTES * factor or len(self._queue) > MAX_MESSAGES * factor

    def _ease(self) -> None:
        self._eased.set()
        self._eased = anyio.Event()


def _may_overtake(message: Envelope) -> bool:
    return message.method == CANCEL_REQUEST or (
        message.method is not None and message.id is not ABSENT
    )
