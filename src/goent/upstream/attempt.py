"""One try at one target: what came of it, and what was said before it broke?

Text is passed on as it comes. From the first piece of a tool call on everything waits until the
answer has told why it stops, so that a broken stream leaves no half call behind.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
from msgspec.structs import replace

from goent.domain.errors import ProviderDown, UnknownModel, WorkerError
from goent.domain.local_servers import not_there
from goent.llm.codec import codec
from goent.llm.failures import broken_off, failure
from goent.llm.limits import read_limits
from goent.llm.sane import sane
from goent.llm.sse import SseEvent, SseSplitter
from goent.llm.talk import Broken, Stopped
from goent.upstream.course import Target
from goent.upstream.forward import (
    Answer,
    Connections,
    ModelCall,
    TooLarge,
    never_left,
    read_whole,
)
from goent.upstream.said import Streamed, Take
from goent.upstream.tally import Tally

LONGEST_ERROR_S = 10.0
PARTING_S = 0.2  # for an answer to end that has said its last word
MOST_ERROR = 1024 * 1024  # bytes of an error
MOST_ANSWER = 64 * 1024 * 1024  # bytes of an answer, at once or streamed
MOST_PIECES = 250_000  # of an answer with tool calls, which is held until it is whole
FIRST_NOT_OK = 300

BeforeTheEnd = Callable[[], Awaitable[None]]


class Attempt:
    """The try. `tally` knows what was counted, also after a failure.

    `owed`: the provider may bill it, as far as is known. `used_up_for_s`: it was the last one that
    the provider's limits allow for so long.
    """

    def __init__(self, connections: Connections, target: Target, call: ModelCall) -> None:
        self.target = target
        self.tally = Tally()
        self.status = 0
        self.owed = False
        self.used_up_for_s: float | None = None
        self._connections = connections
        self._call = call
        self._reader = codec(target.dialect).reader()
        self._held: list[Streamed] = []
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    async def stream(self, take: Take, before_the_end: BeforeTheEnd) -> None:
        """The answer, piece by piece. `before_the_end` is awaited before the last one is taken.

        Raises a `WorkerError`; what was taken until then stays taken.
        """
        try:
            async with self._sent() as answer:
                if not answer.is_stream:
                    raise await self._not_a_stream(answer)
                await self._read(answer, take, before_the_end)
        except WorkerError:
            if not (self.tally.stopped or self._has_whole_calls):
                raise
            # All was said; what may be missing are the figures.
        if not self.tally.stopped:
            await self._end_early(take)
        await before_the_end()

    async def plain(self) -> bytes:
        """The answer at once."""
        async with self._sent() as answer:
            with self._connections.memory.share() as share:
                body = await read_whole(answer, self.target.place, share, most=MOST_ANSWER)
        chunks = codec(self.target.dialect).read_answer(body)
        self.tally.note(chunks)
        self._look_for_trouble(chunks)
        return sane(self.target.dialect, body)

    @asynccontextmanager
    async def _sent(self) -> AsyncGenerator[Answer]:
        self.owed = True
        try:
            async with self._connections.send(self._call) as answer:
                self.status = answer.status
                if answer.status >= FIRST_NOT_OK:
                    self.owed = False
                    raise await self._refusal(answer)
                limits = read_limits(answer.headers, now=time.time())
                self.used_up_for_s = limits.resets_in_s if limits.used_up else None
                yield answer
        except WorkerError as error:
            self.owed = self.owed and not never_left(error)
            raise

    async def _read(self, answer: Answer, take: Take, before_the_end: BeforeTheEnd) -> None:
        splitter = SseSplitter()
        size = 0
        async for piece in answer.pieces:
            size += len(piece)
            if size > MOST_ANSWER:
                raise self._too_large(f"an answer of more than {MOST_ANSWER} bytes")
            if await self._pass(self._events(splitter, piece), take, before_the_end):
                # A connection that is read to its end can be used again.
                with anyio.move_on_after(PARTING_S):
                    async for _ in answer.pieces:
                        pass
                return
        await self._pass(splitter.close(), take, before_the_end)

    def _events(self, splitter: SseSplitter, piece: bytes) -> Sequence[SseEvent]:
        events = splitter.feed(piece)
        if splitter.dropped:  # an answer with a hole in it must not look whole
            raise self._too_large(f"an event of more than {splitter.limit} bytes")
        return events

    def _too_large(self, what: str) -> TooLarge:
        return TooLarge(f"{self.target.place} sent {what}, the limit")

    async def _pass(
        self, events: Sequence[SseEvent], take: Take, before_the_end: BeforeTheEnd
    ) -> bool:
        """True if that was the last word."""
        ready: list[Streamed] = []
        last = False
        try:
            for event in events:
                last = last or _is_last(event)
                self._sort(event, ready)
        finally:
            if last and self.tally.stopped:
                await before_the_end()
            if ready:
                await take(ready)
        return last

    def _sort(self, event: SseEvent, ready: list[Streamed]) -> None:
        """Into what may be shown and what has to wait."""
        if _is_last(event) and not self.tally.stopped:
            return  # to an end without a reason OpenCode answers with the next call, without limit
        chunks = self._reader.read(event)
        self._look_for_trouble(chunks)
        self.tally.note(chunks)
        shown = sane(self.target.dialect, event.data)
        if shown is not event.data:
            event = event._replace(data=shown)
        streamed = Streamed(chunks, event, self._reader.place)
        if self.tally.has_calls:
            if len(self._held) >= MOST_PIECES:
                raise self._too_large(f"tool calls in more than {MOST_PIECES} pieces")
            self._held.append(streamed)
        else:
            ready.append(streamed)
        if self.tally.stopped:
            ready += self._held
            self._held.clear()

    def _look_for_trouble(self, chunks: Sequence[object]) -> None:
        for chunk in chunks:
            if isinstance(chunk, Broken) and not self.tally.stopped:
                said = self._call.without_key(chunk.message.encode()).decode()
                raise broken_off(self.target.provider.backend, replace(chunk, message=said))

    @property
    def _has_whole_calls(self) -> bool:
        return bool(self._held) and self.tally.calls_are_whole

    async def _end_early(self, take: Take) -> None:
        """The stream is over and did not say why. Calls that are whole can be made all the same."""
        if not self._has_whole_calls:
            raise ProviderDown(f"{self.target.place} broke off in the middle of its answer")
        stop = Streamed((Stopped(reason="tool_calls"),))
        self.tally.note(stop.chunks)
        await take([*self._held, stop])

    async def _refusal(self, answer: Answer) -> WorkerError:
        body = await self._error_body(answer)
        backend = self.target.provider.backend
        error = failure(backend, answer.status, answer.headers, body, now=time.time())
        if self.target.local and isinstance(error, UnknownModel):
            return UnknownModel(
                not_there(backend, self.target.base_url, self.target.provider.model)
            )
        return error

    async def _not_a_stream(self, answer: Answer) -> WorkerError:
        body = await self._error_body(answer)
        kind = dict(answer.headers).get(b"content-type", b"no type").decode(errors="replace")
        # A page is not quoted: OpenCode reads words in it as a reason to try again.
        return ProviderDown(
            f"{self.target.place} was asked for a stream and answered {kind} "
            f"({len(body)} bytes): check its base_url"
        )

    async def _error_body(self, answer: Answer) -> bytes:
        body = bytearray()
        with anyio.move_on_after(LONGEST_ERROR_S):  # who answers wrongly may also not end
            async for piece in answer.pieces:
                body += piece[: MOST_ERROR - len(body)]
                if len(body) == MOST_ERROR:
                    break
        return self._call.without_key(bytes(body))


def _is_last(event: SseEvent) -> bool:
    return event.data == b"[DONE]" or event.event == b"message_stop"
