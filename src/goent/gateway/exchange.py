"""How does an answer get back to the worker: byte for byte, and counted before it ends?

The worker's program ends its turn with the last bytes, and whoever waits for the turn then reads
the figures. So the call is reported first.
"""

import anyio

from goent.domain.errors import ProviderRefused, ProviderTimeout, WorkerError
from goent.gateway import http
from goent.gateway.calls import Call
from goent.gateway.http import Headers, Receive, Send
from goent.llm.errors import error_event, error_text
from goent.upstream.forward import Answer, ModelCall, Upstream, never_left

SILENT = 424  # at 504 OpenCode would wait for the provider five times more
WAITS = {b"retry-after": 1.0, b"retry-after-ms": 0.001}
LONGEST_WAIT_S = 20.0
LONGEST_ERROR_S = 10.0
MOST_ERROR = 1024 * 1024  # bytes of an error
FIRST_NOT_OK = 300
CUT_OFF = "cut off before the answer's end: the worker hung up, or go-ent ended"
UNFINISHED = "the provider's stream ended without a finish reason"


class Exchange:
    """One call on its way out and back."""

    def __init__(self, call: Call, upstream: Upstream, send: Send) -> None:
        self._call = call
        self._upstream = upstream
        self._send = send
        self._started = False

    async def run(self, order: ModelCall, receive: Receive) -> None:
        """Ends when the answer has been passed on, or when the client is gone."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._watch, receive)
            await self._forward(order)
            tasks.cancel_scope.cancel()

    async def _watch(self, receive: Receive) -> None:
        await http.hung_up(receive)
        self._call.scope.cancel()

    async def _forward(self, order: ModelCall) -> None:
        try:
            await self._call.begin()
            async with self._upstream.send(order) as answer:
                self._call.answered(answer.status, stream=answer.is_stream)
                await self._pass_on(answer, order)
        except WorkerError as error:
            self._call.owed = not never_left(error)
            await self._fail(error)
        finally:
            await self._call.report(CUT_OFF)

    async def _fail(self, error: WorkerError) -> None:
        if self._started:
            await self._call.report(str(error))
            if isinstance(error, ProviderTimeout):
                remark = error_event(self._call.asked.dialect, f"go-ent: {error}")
                await http.finish(self._send, remark)
            # Else: to return without an end closes the connection, as the provider did with ours.
            return
        status = 502
        if isinstance(error, ProviderTimeout):
            status = SILENT
        elif isinstance(error, ProviderRefused):
            status = 400  # trying again would not help, and OpenCode tries again at 5xx
        self._call.status = status
        await self._call.report(str(error))
        await http.refuse(self._send, self._call.asked.dialect, status, f"go-ent: {error}")

    async def _pass_on(self, answer: Answer, order: ModelCall) -> None:
        if answer.status >= FIRST_NOT_OK:
            await self._pass_error(answer, order)
        elif answer.is_stream:
            await self._pass_stream(answer)
        elif self._call.asked.stream and self._call.asked.metered:
            await self._refuse_other_than_stream(answer, order)
        else:
            await self._pass_plain(answer)

    async def _refuse_other_than_stream(self, answer: Answer, order: ModelCall) -> None:
        """A page, a status, nothing at all: OpenCode would call again and again, without limit."""
        body = await _first_bytes(answer, order)
        kind = dict(answer.headers).get(b"content-type", b"no type").decode(errors="replace")
        # A page is not quoted: OpenCode reads "502" or "overloaded" as a reason to try again.
        said = error_text(body) if "json" in kind else f"{len(body)} bytes"
        await self._fail(
            ProviderRefused(
                f"backend {order.backend!r} was asked for a stream and answered {kind} ({said})"
            )
        )

    async def _start(self, answer: Answer, headers: Headers) -> None:
        self._started = True
        await http.start(self._send, answer.status, headers)

    async def _pass_stream(self, answer: Answer) -> None:
        await self._start(answer, _without_length(answer.headers))
        async for piece in answer.pieces:
            self._call.feed(piece)
            if self._call.ended:
                await self._call.report("" if self._call.finished else UNFINISHED)
            await http.go_on(self._send, piece)
        await self._call.report("" if self._call.finished else UNFINISHED)
        # OpenCode answers a stream without a finish reason by calling again, without limit.
        dialect = self._call.asked.dialect
        remark = b"" if self._call.finished else error_event(dialect, f"go-ent: {UNFINISHED}")
        await http.finish(self._send, remark)

    async def _pass_plain(self, answer: Answer) -> None:
        await self._start(answer, answer.headers)
        held = b""
        async for piece in answer.pieces:
            self._call.feed(piece)
            if held:
                await http.go_on(self._send, held)
            held = piece
        await self._call.report()
        await http.finish(self._send, held)

    async def _pass_error(self, answer: Answer, order: ModelCall) -> None:
        self._call.owed = False
        shown = await _first_bytes(answer, order)
        await self._call.report(error_text(shown))
        self._started = True
        await http.reply(self._send, answer.status, _bounded(answer.headers), shown)


async def _first_bytes(answer: Answer, order: ModelCall) -> bytes:
    body = bytearray()
    with anyio.move_on_after(LONGEST_ERROR_S):  # who answers wrongly may also not end
        async for piece in answer.pieces:
            body += piece[: MOST_ERROR - len(body)]
    # Providers have been seen to quote the key that they refuse.
    return bytes(body).replace(order.key.reveal().strip().encode(), b"[redacted]")


def _without_length(headers: Headers) -> Headers:
    """A stream may get a last remark of ours, which its length would not cover."""
    return tuple((name, value) for name, value in headers if name != b"content-length")


def _bounded(headers: Headers) -> Headers:
    """Without the length, which changed, and without an order to wait for long.

    OpenCode sleeps as long as it is told to, be it an hour; left alone, it gives up in time.
    """
    bare = _without_length(headers)
    return tuple((name, value) for name, value in bare if not _is_long_wait(name, value))


def _is_long_wait(name: bytes, value: bytes) -> bool:
    if name not in WAITS:
        return False
    try:
        return float(value) * WAITS[name] > LONGEST_WAIT_S
    except ValueError:
        return True  # a date: whatever it says, it was not meant for somebody who is watched
