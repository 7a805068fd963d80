"""Answers one model call of a worker's program, streamed or whole, until it hangs up.

Nothing is sent before the first piece, so that a failure can still have its status. If that takes
long, comments keep the connection alive; from then on a failure is an event in the stream.
"""

import asyncio
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

import anyio

from goent.domain.errors import WorkerError
from goent.gateway import asgi
from goent.gateway.asgi import Receive, Send
from goent.providers.call_plan import CallPlan, InboundCall
from goent.providers.call_translation import StreamPiece
from goent.providers.dialects import StreamWriter, codec_for
from goent.providers.gateway_errors import gateway_refusal
from goent.providers.provider_errors import error_event
from goent.providers.sse import SseEvent
from goent.providers.upstream import Upstream

SETTLE_S = 2.0


class OpenCall:
    """One call in progress; cancelling its scope ends it."""

    def __init__(self, worker: str) -> None:
        self.worker = worker
        self.scope = anyio.CancelScope()
        self.settled = anyio.Event()  # it has been counted
        self.began = time.monotonic()


class OpenCalls:
    """The calls in progress."""

    def __init__(self) -> None:
        self._calls: set[OpenCall] = set()

    @contextmanager
    def track(self, worker: str) -> Generator[OpenCall]:
        call = OpenCall(worker)
        self._calls.add(call)
        try:
            with call.scope:
                yield call
        finally:
            self._calls.discard(call)
            call.settled.set()

    async def settle(self, worker: str) -> None:
        """Return when every call of the worker has been counted, or after a bounded wait."""
        with anyio.move_on_after(SETTLE_S):
            while uncounted := [
                call for call in self._calls if call.worker == worker and not call.settled.is_set()
            ]:
                await uncounted[0].settled.wait()

    def waiting_s(self, worker: str) -> float | None:
        """For how long the worker's oldest call has been in progress; None if there is none."""
        began = [call.began for call in self._calls if call.worker == worker]
        return time.monotonic() - min(began) if began else None

    def cancel_all(self) -> None:
        for call in self._calls:
            call.scope.cancel()


KEEP_ALIVE_S = 5.0
BATCH_S = 0.001  # pieces that were read together come this closely
MAX_PENDING = 256  # pieces; a client that reads slowly slows its model down
KEEP_ALIVE_COMMENT = b": go-ent is waiting for the model\n\n"


class ResponseWriter:
    """The answer to one streaming call, in the dialect of the call."""

    def __init__(self, send: Send, inbound: InboundCall) -> None:
        self._send = send
        self._inbound = inbound
        self._started = False
        self._last: StreamPiece | None = None  # that was passed on as it came
        self._writer: StreamWriter | None = None
        self._last_sent = time.monotonic()
        self._pending: list[bytes] = []
        self._pending_event = anyio.Event()
        self._lock = asyncio.Lock()  # several tasks send; anyio's lock takes three times as long

    async def take(self, pieces: Sequence[StreamPiece]) -> None:
        """Send pieces after a pause immediately; gather those that follow closely."""
        self._pending += [self._encode(piece) for piece in pieces]
        quiet = time.monotonic() - self._last_sent
        if not self._started or quiet > BATCH_S or len(self._pending) > MAX_PENDING:
            await self._flush()
        else:
            self._pending_event.set()

    async def flush_forever(self) -> None:
        """Send gathered pieces, for ever."""
        while True:
            await self._pending_event.wait()
            self._pending_event = anyio.Event()
            await self._flush()

    async def keep_alive(self) -> None:
        while True:
            quiet = time.monotonic() - self._last_sent
            if quiet >= KEEP_ALIVE_S:
                self._pending.append(KEEP_ALIVE_COMMENT)
                await self._flush()
            else:
                await anyio.sleep(KEEP_ALIVE_S - quiet)

    async def finish(self) -> None:
        async with self._lock:
            await self._start()
            end = self._writer.close() if self._writer else b""
            await asgi.finish_reply(self._send, self._drain() + end)

    async def fail(self, error: WorkerError) -> None:
        """Report the error in a way that the client does not retry."""
        async with self._lock:
            refusal = gateway_refusal(error)
            if self._started or self._pending:
                await self._start()
                end = error_event(self._inbound.dialect, refusal.message)
                await asgi.finish_reply(self._send, self._drain() + end)
            else:
                await asgi.send_refusal(self._send, self._inbound.dialect, *refusal)

    def _encode(self, piece: StreamPiece) -> bytes:
        if piece.event and not self._writer:
            self._last = piece
            return _sse_bytes(piece.event)
        if not self._writer:
            codec = codec_for(self._inbound.dialect)
            self._writer = codec.writer(self._inbound.model, after=self._last)
        return b"".join(self._writer.write(chunk) for chunk in piece.chunks)

    async def _flush(self) -> None:
        async with self._lock:
            if self._pending:
                self._last_sent = time.monotonic()
                await self._start()
                await asgi.send_piece(self._send, self._drain())

    def _drain(self) -> bytes:
        taken, self._pending = b"".join(self._pending), []
        return taken

    async def _start(self) -> None:
        if not self._started:
            self._started = True
            await asgi.start_reply(self._send, 200, asgi.SSE_HEADERS)


def _sse_bytes(event: SseEvent) -> bytes:
    name = b"event: " + event.event + b"\n" if event.event else b""
    return name + b"data: " + event.data.replace(b"\n", b"\ndata: ") + b"\n\n"


async def answer_call(
    call: OpenCall,
    upstream: Upstream,
    inbound: InboundCall,
    plan: CallPlan,
    receive: Receive,
    send: Send,
) -> None:
    """Answer the call; ends when the answer has been passed on, or the client is gone."""
    writer, body = ResponseWriter(send, inbound), b""
    async with anyio.create_task_group() as beside:
        beside.start_soon(_cancel_on_hang_up, call, receive)
        if inbound.stream:
            beside.start_soon(writer.flush_forever)
            beside.start_soon(writer.keep_alive)
        try:
            if inbound.stream:
                await upstream.stream(inbound, plan, writer.take)
            else:
                body = await upstream.complete(inbound, plan)
        except WorkerError as error:
            call.settled.set()
            await writer.fail(error)
        else:
            call.settled.set()
            if inbound.stream:
                await writer.finish()
            else:
                await asgi.send_reply(send, 200, asgi.JSON_HEADERS, body)
        beside.cancel_scope.cancel()


async def _cancel_on_hang_up(call: OpenCall, receive: Receive) -> None:
    await asgi.wait_for_hang_up(receive)
    call.scope.cancel()
