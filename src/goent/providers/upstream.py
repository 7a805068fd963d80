"""Makes one model call: asks a target, fails over to the next, counts and reports each attempt.

Whoever asks (the gateway for a worker's program, the api method, go-ent's own agent) gets one answer.
The observer hears which targets were tried for it, what each cost and why it was left. It hears the
figures before the answer's last bytes are passed on: those end the turn, and whoever waits for the
turn reads the figures next.

Text is passed on as it comes. From the first piece of a tool call on, everything waits until the
answer says why it stops, so that a broken stream leaves no half call behind.
"""

import logging
import random
import secrets
import time
from collections import OrderedDict, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from io import StringIO

import anyio
from msgspec.structs import replace

from goent.billing.token_estimate import TokenGauge
from goent.domain.errors import (
    AtLimit,
    BudgetSpent,
    ProviderDown,
    ProviderUnavailable,
    ServerNotRunning,
    UnknownModel,
    WorkerError,
)
from goent.domain.local_servers import missing_model_message
from goent.domain.money import (
    CallDelay,
    CallObserver,
    CallSize,
    FinishedCall,
    ProviderMove,
    StartedCall,
)
from goent.domain.provider_condition import ProviderCondition, ProviderHealth
from goent.domain.types import Usage
from goent.providers.call_plan import (
    AttemptSchedule,
    CallPlan,
    CallTarget,
    InboundCall,
    NextAttempt,
    RetrySettings,
    condition_text,
    unavailable_error,
)
from goent.providers.call_translation import (
    JoinedAnswer,
    StreamPiece,
    TakePieces,
    build_call,
    describe_omissions,
)
from goent.providers.connections import (
    AnswerTooLarge,
    Connections,
    ModelCall,
    ProviderAnswer,
    read_start,
    read_whole,
    was_never_sent,
)
from goent.providers.dialects import codec_for
from goent.providers.model_messages import (
    AnswerChunk,
    ErrorPiece,
    StopPiece,
    ToolPiece,
    UsagePiece,
    is_json,
)
from goent.providers.provider_errors import failure_from_answer, failure_in_stream, read_rate_limits
from goent.providers.provider_health import CircuitBreakers
from goent.providers.sse import SseEvent, SseSplitter
from goent.providers.token_usage import drop_implausible_usage

logger = logging.getLogger(__name__)

MAX_ERROR_S = 10.0  # for the body of an error to arrive
MAX_ERROR_BYTES = 1024 * 1024
STREAM_END_S = 0.2  # for a stream to end after its last event
MOST_ANSWER = 64 * 1024 * 1024  # bytes of an answer, whole or streamed
MOST_PIECES = 250_000  # of an answer with tool calls, which is held until it is complete
REPORT_S = 10.0
MAX_QUEUE_S = 300.0  # for a limit of the user's own to have room
MAX_REMEMBERED = 4096
FIRST_ERROR_STATUS = 300
HUNG_UP_STATUS = 499  # as web servers log a client that left before there was a status
CUT_OFF_TEXT = "cut off before the answer's end: the worker hung up, or go-ent ended"

BeforeEnd = Callable[[], Awaitable[None]]


class AnswerTally:
    """What the chunks of one answer added up to so far."""

    def __init__(self) -> None:
        self.stopped = False
        self.usage: Usage | None = None
        self._calls: defaultdict[int, StringIO] = defaultdict(StringIO)

    def add(self, chunks: Sequence[AnswerChunk]) -> None:
        for chunk in chunks:
            match chunk:
                case ToolPiece():
                    self._calls[chunk.index].write(chunk.arguments)
                case UsagePiece():
                    self.usage = chunk.usage
                case StopPiece():
                    self.stopped = True
                case _:
                    pass

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    @property
    def calls_are_complete(self) -> bool:
        return all(is_json(arguments.getvalue()) for arguments in self._calls.values())


class CallAttempt:
    """One call to one target. `tally` has what was counted, also after a failure.

    `billable`: the provider may bill it, as far as is known. `exhausted_for_s`: for how long the
    provider's limits allow no further call.
    """

    def __init__(self, connections: Connections, target: CallTarget, call: ModelCall) -> None:
        self.target = target
        self.tally = AnswerTally()
        self.status = 0
        self.billable = False
        self.exhausted_for_s: float | None = None
        self._connections = connections
        self._call = call
        self._reader = codec_for(target.dialect).reader()
        self._held_pieces: list[StreamPiece] = []
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    async def stream(self, take: TakePieces, before_the_end: BeforeEnd) -> None:
        """Pass the answer on piece by piece; `before_the_end` is awaited before the last one.

        Raises a `WorkerError`; what was passed on until then stays so.
        """
        try:
            async with self._sent_call() as answer:
                if not answer.is_stream:
                    raise await self._not_a_stream(answer)
                await self._read(answer, take, before_the_end)
        except WorkerError:
            if not (self.tally.stopped or self._has_whole_calls):
                raise
            # The answer is complete; only its usage may be missing.
        if not self.tally.stopped:
            await self._end_early(take)
        await before_the_end()

    async def read_whole(self) -> bytes:
        async with self._sent_call() as answer:
            with self._connections.memory.share() as share:
                body = await read_whole(answer, self.target.place, share, most=MOST_ANSWER)
        chunks = codec_for(self.target.dialect).read_answer(body)
        self.tally.add(chunks)
        self._raise_stream_error(chunks)
        return drop_implausible_usage(self.target.dialect, body)

    @asynccontextmanager
    async def _sent_call(self) -> AsyncGenerator[ProviderAnswer]:
        self.billable = True
        try:
            async with self._connections.send(self._call) as answer:
                self.status = answer.status
                if answer.status >= FIRST_ERROR_STATUS:
                    self.billable = False
                    raise await self._refusal(answer)
                limits = read_rate_limits(answer.headers, now=time.time())
                self.exhausted_for_s = limits.resets_in_s if limits.is_exhausted else None
                yield answer
        except WorkerError as error:
            self.billable = self.billable and not was_never_sent(error)
            raise

    async def _read(
        self, answer: ProviderAnswer, take: TakePieces, before_the_end: BeforeEnd
    ) -> None:
        splitter = SseSplitter()
        size = 0
        async for piece in answer.pieces:
            size += len(piece)
            if size > MOST_ANSWER:
                raise self._too_large(f"an answer of more than {MOST_ANSWER} bytes")
            if await self._pass_on(self._events(splitter, piece), take, before_the_end):
                # A connection that was read to its end can be reused.
                with anyio.move_on_after(STREAM_END_S):
                    async for _ in answer.pieces:
                        pass
                return
        await self._pass_on(splitter.close(), take, before_the_end)

    def _events(self, splitter: SseSplitter, piece: bytes) -> Sequence[SseEvent]:
        events = splitter.feed(piece)
        if splitter.dropped:  # an answer with a gap must not look complete
            raise self._too_large(f"an event of more than {splitter.limit} bytes")
        return events

    def _too_large(self, what: str) -> AnswerTooLarge:
        return AnswerTooLarge(f"{self.target.place} sent {what}, the limit")

    async def _pass_on(
        self, events: Sequence[SseEvent], take: TakePieces, before_the_end: BeforeEnd
    ) -> bool:
        """Whether that was the last event."""
        ready: list[StreamPiece] = []
        last = False
        try:
            for event in events:
                last = last or _is_last_event(event)
                self._sort_event(event, ready)
        finally:
            if last and self.tally.stopped:
                await before_the_end()
            if ready:
                await take(ready)
        return last

    def _sort_event(self, event: SseEvent, ready: list[StreamPiece]) -> None:
        """Add what may be passed on now to `ready`; hold back the rest."""
        if _is_last_event(event) and not self.tally.stopped:
            return  # after an end without a reason OpenCode makes the next call, endlessly
        chunks = self._reader.read(event)
        self._raise_stream_error(chunks)
        self.tally.add(chunks)
        data = drop_implausible_usage(self.target.dialect, event.data)
        if data is not event.data:
            event = event._replace(data=data)
        streamed = StreamPiece(chunks, event, self._reader.place)
        if self.tally.has_calls:
            if len(self._held_pieces) >= MOST_PIECES:
                raise self._too_large(f"tool calls in more than {MOST_PIECES} pieces")
            self._held_pieces.append(streamed)
        else:
            ready.append(streamed)
        if self.tally.stopped:
            ready += self._held_pieces
            self._held_pieces.clear()

    def _raise_stream_error(self, chunks: Sequence[object]) -> None:
        for chunk in chunks:
            if isinstance(chunk, ErrorPiece) and not self.tally.stopped:
                message = self._call.without_key(chunk.message.encode()).decode()
                error = replace(chunk, message=message)
                raise failure_in_stream(self.target.provider.backend, error)

    @property
    def _has_whole_calls(self) -> bool:
        return bool(self._held_pieces) and self.tally.calls_are_complete

    async def _end_early(self, take: TakePieces) -> None:
        """The stream ended without a reason to stop: complete tool calls can be made all the same."""
        if not self._has_whole_calls:
            raise ProviderDown(f"{self.target.place} broke off in the middle of its answer")
        stop = StreamPiece((StopPiece(reason="tool_calls"),))
        self.tally.add(stop.chunks)
        await take([*self._held_pieces, stop])

    async def _refusal(self, answer: ProviderAnswer) -> WorkerError:
        body = await self._error_body(answer)
        backend = self.target.provider.backend
        error = failure_from_answer(backend, answer.status, answer.headers, body, now=time.time())
        if self.target.is_local and isinstance(error, UnknownModel):
            return UnknownModel(
                missing_model_message(backend, self.target.base_url, self.target.provider.model)
            )
        return error

    async def _not_a_stream(self, answer: ProviderAnswer) -> WorkerError:
        body = await self._error_body(answer)
        kind = dict(answer.headers).get(b"content-type", b"no type").decode(errors="replace")
        # A page is not quoted: OpenCode takes words in it as a reason to retry.
        return ProviderDown(
            f"{self.target.place} answered with {kind} ({len(body)} bytes) instead of a stream: "
            f"check its base_url"
        )

    async def _error_body(self, answer: ProviderAnswer) -> bytes:
        body = await read_start(answer, most=MAX_ERROR_BYTES, within_s=MAX_ERROR_S)
        return self._call.without_key(body)


def _is_last_event(event: SseEvent) -> bool:
    return event.data == b"[DONE]" or event.event == b"message_stop"


class CallReport:
    """Reports one attempt to the observer. Its failure to listen does not break the answer."""

    def __init__(
        self, observer: CallObserver, gauge: TokenGauge, inbound: InboundCall, attempt: CallAttempt
    ) -> None:
        self._observer = observer
        self._gauge = gauge
        self._inbound = inbound
        self._attempt = attempt
        self._id = secrets.token_hex(8)
        self._reported = False
        self._known_size: CallSize | None = None

    async def report_start(self, *, patient: bool) -> None:
        """Return when the call may go out.

        `patient`: no other target is left, so wait for limits instead of raising `AtLimit`.
        """
        try:
            await self._wait(patient=patient)
        except anyio.get_cancelled_exc_class():
            await self.report_end(CUT_OFF_TEXT)  # it may have been admitted in the same moment
            raise

    async def _wait(self, *, patient: bool) -> None:
        reason, waited = "", 0.0
        while delay := await self._request_start():
            if not patient or waited >= MAX_QUEUE_S:
                raise AtLimit(delay.reason, retry_after_s=delay.wait_s)
            if delay.reason != reason:
                reason = delay.reason
                await self._observer.notice(self._inbound.worker, f"waiting: {reason}")
            pause = min(delay.wait_s * random.uniform(1, 1.5), MAX_QUEUE_S)  # noqa: S311 (spreads calls)
            await anyio.sleep(pause)
            waited += pause

    async def _request_start(self) -> CallDelay | None:
        provider = self._attempt.target.provider
        worker = self._inbound.worker
        call = StartedCall(
            id=self._id, worker=worker, backend=provider.backend, model=provider.model
        )
        try:
            return await self._observer.call_started(call, self._size)
        except WorkerError:
            raise
        except Exception:
            logger.exception("a call of worker %r was not announced", worker)
            return None

    async def _size(self) -> CallSize:
        if self._known_size is None:
            self._known_size = await self._gauge.size(
                self._inbound.body, self._attempt.target.provider
            )
        return self._known_size

    async def report_end(self, error: str = "") -> None:
        """Report once, also when the asker leaves meanwhile."""
        if self._reported:
            return
        self._reported = True
        try:
            with anyio.move_on_after(REPORT_S, shield=True):
                await self._observer.call_finished(await self._call_made(error))
        except Exception:
            logger.exception("a call of worker %r was not counted", self._inbound.worker)

    async def _call_made(self, error: str) -> FinishedCall:
        attempt, provider = self._attempt, self._attempt.target.provider
        usage, whole = attempt.tally.usage, attempt.tally.stopped
        if usage and whole:
            await self._gauge.learn(self._inbound.body, provider, usage)
        return FinishedCall(
            id=self._id,
            worker=self._inbound.worker,
            session=self._inbound.session,
            backend=provider.backend,
            model=provider.model,
            status=attempt.status or HUNG_UP_STATUS,
            usage=usage,
            is_final=whole,
            billable=attempt.billable,
            seconds=attempt.seconds,
            error=error,
        )


RunAttempt = Callable[[CallAttempt, CallReport], Awaitable[None]]
TargetFailures = Mapping[str, ProviderUnavailable]


class Upstream:
    """Makes model calls, to whichever target of a plan can answer."""

    def __init__(  # noqa: PLR0913 (what it stands on)
        self,
        connections: Connections,
        observer: CallObserver,
        *,
        gauge: TokenGauge | None = None,
        healths: ProviderHealth | None = None,
        patience: RetrySettings = RetrySettings(),  # noqa: B008 (frozen)
        clock: Callable[[], float] = time.time,
        silence: Callable[[], float | None] = lambda: None,
    ) -> None:
        """`silence` gives the seconds without a byte after which a call fails now; None: the usual."""
        self.connections = connections
        self._observer = observer
        self._gauge = gauge or TokenGauge()
        self._healths = healths or CircuitBreakers()
        self._patience = patience
        self._clock = clock
        self._silence = silence
        # By worker and wanted target: who served last, and what of the request it was not sent.
        self._last_served: OrderedDict[tuple[str, str], tuple[str, str]] = OrderedDict()

    async def stream(self, inbound: InboundCall, plan: CallPlan, take: TakePieces) -> None:
        """The answer in pieces. Raises a `WorkerError` if no target could give or finish it."""
        joined = JoinedAnswer(inbound.dialect, take)

        async def run(attempt: CallAttempt, report: CallReport) -> None:
            await attempt.stream(joined.receiver_for(attempt.target.dialect), report.report_end)

        await self._ask(inbound, plan, run, lambda: joined.text)

    async def complete(self, inbound: InboundCall, plan: CallPlan) -> bytes:
        """The whole answer, in the dialect of the call."""
        answer = b""

        async def run(attempt: CallAttempt, report: CallReport) -> None:
            nonlocal answer
            answer = await attempt.read_whole()
            await report.report_end()
            if attempt.target.dialect != inbound.dialect:
                chunks = codec_for(attempt.target.dialect).read_answer(answer)
                answer = codec_for(inbound.dialect).write_answer(inbound.model, chunks)

        await self._ask(inbound, plan, run, lambda: "")
        return answer

    async def _ask(
        self, inbound: InboundCall, plan: CallPlan, run: RunAttempt, so_far: Callable[[], str]
    ) -> None:
        schedule = AttemptSchedule(plan, self._healths, self._patience, self._clock)
        failures: dict[str, ProviderUnavailable] = {}
        while upcoming := schedule.next_attempt():
            target = upcoming.target
            await self._wait_before(inbound, upcoming, failures)
            call = build_call(
                inbound,
                target,
                so_far=so_far(),
                hurry=schedule.has_alternative,
                silence_s=self._silence(),
            )
            if not await self._healths.try_admit(target.provider, force=upcoming.force):
                continue  # another call is trying it at the moment
            attempt = CallAttempt(self.connections, target, call)
            report = CallReport(self._observer, self._gauge, inbound, attempt)
            try:
                async with self._recorded_outcome(attempt):
                    await report.report_start(patient=not schedule.has_alternative)
                    await self._report_move(inbound, plan, target, failures)
                    await self._run_reported(attempt, report, run)
            except ProviderUnavailable as error:
                failures[target.name] = error
                if isinstance(error, ServerNotRunning):
                    schedule.drop(target)  # the user has to start it first
            else:
                return
        if failures:
            raise _combined_error(failures)
        raise unavailable_error(plan, self._healths, self._clock())

    @asynccontextmanager
    async def _recorded_outcome(self, attempt: CallAttempt) -> AsyncGenerator[None]:
        """Record once what an admitted call shows about its provider."""
        provider, began = attempt.target.provider, self._clock()
        try:
            yield
        except (AtLimit, BudgetSpent, ServerNotRunning):  # it was not called
            await self._healths.release(provider)
            raise
        except WorkerError as error:
            await self._healths.record_failure(provider, error, began=began)
            raise
        except BaseException:
            with anyio.CancelScope(shield=True):
                await self._healths.release(provider)
            raise
        await self._healths.record_success(
            provider, began=began, used_up_for_s=attempt.exhausted_for_s
        )

    async def _run_reported(
        self, attempt: CallAttempt, report: CallReport, run: RunAttempt
    ) -> None:
        try:
            await run(attempt, report)
        except WorkerError as error:
            await report.report_end(str(error))
            raise
        finally:
            await report.report_end(CUT_OFF_TEXT)

    async def _wait_before(
        self, inbound: InboundCall, upcoming: NextAttempt, failures: TargetFailures
    ) -> None:
        if not upcoming.wait_s:
            return
        if not upcoming.silent:
            reason = failures.get(upcoming.target.name)
            text = f"retrying {upcoming.target.name} in {upcoming.wait_s:.0f} s"
            await self._observer.notice(inbound.worker, f"{text} ({reason})" if reason else text)
        await anyio.sleep(upcoming.wait_s)

    async def _report_move(
        self, inbound: InboundCall, plan: CallPlan, target: CallTarget, failures: TargetFailures
    ) -> None:
        """Tell the observer when another target serves the worker than before."""
        wanted = plan.targets[0].name
        key = (inbound.worker, wanted)
        before, omitted_before = self._last_served.get(key, (wanted, ""))
        omitted = describe_omissions(inbound, target)
        if (before, omitted_before) == (target.name, omitted):
            return
        self._last_served[key] = target.name, omitted
        if len(self._last_served) > MAX_REMEMBERED:
            self._last_served.popitem(last=False)
        difference = f"{target.name} is asked {omitted}" if omitted else ""
        if before == target.name:
            if difference:
                await self._observer.notice(inbound.worker, difference)
            return
        reason = str(failures.get(before) or self._unavailable_reason(plan, before))
        reason = f"{reason}; {difference}" if difference else reason
        moved = ProviderMove(
            worker=inbound.worker, from_provider=before, to_provider=target.name, reason=reason
        )
        await self._observer.provider_changed(moved)

    def _unavailable_reason(self, plan: CallPlan, name: str) -> str:
        target = next((target for target in plan.targets if target.name == name), None)
        condition = self._healths.condition(target.provider) if target else ProviderCondition()
        if condition.state in {"unknown", "healthy"}:
            return "the requested provider is available again"
        return f"{name} is {condition_text(condition, self._clock())}"


def _combined_error(failures: TargetFailures) -> WorkerError:
    """The first target's failure, with those of the fallbacks in its message."""
    (_, first), *others = failures.items()
    if others:
        more = "; ".join(f"fallback {name}: {error}" for name, error in others)
        first.args = (f"{first}; {more}",)
    return first
