"""Lists everything a client can call by name: one table for MCP, the socket and the CLI.

It takes hundreds of megabytes, so a client that only connects, or that works by other methods, starts
none. A task that is routed to it starts it anyhow.
"""

import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, TypeVar, get_args, get_origin

import anyio
import msgspec
from msgspec.structs import replace

from goent.domain.errors import RequestError
from goent.domain.evaluation_messages import (
    EvalCompareRequest,
    EvalComparison,
    EvalRunRequest,
    EvalStatus,
    EvalStatusRequest,
    Evaluations,
)
from goent.domain.replies import (
    AnswerReply,
    CancelReply,
    ClearReply,
    Costs,
    ExplainReply,
    ForgetReply,
    LearnedReply,
    OutputReply,
    PromptReply,
    ProviderList,
    RecommendReply,
    Result,
    RuleList,
    SpaceList,
    SpawnReply,
    Status,
    WaitReply,
    WorkerList,
)
from goent.domain.requests import (
    AgentCancelRequest,
    AgentPromptRequest,
    AgentSpawnRequest,
    AnswerRequest,
    CancelRequest,
    ClearRequest,
    CostsRequest,
    ForgetRequest,
    LearnedRequest,
    ListRequest,
    OperationRequest,
    OutputRequest,
    PromptRequest,
    ProvidersRequest,
    RecommendRequest,
    RulesRequest,
    SpacesRequest,
    SpawnRequest,
    StatusRequest,
    WaitRequest,
    WorkerRequest,
)
from goent.domain.swarm_messages import (
    SwarmCancelRequest,
    SwarmList,
    SwarmMergeReply,
    SwarmMergeRequest,
    SwarmRequest,
    SwarmResult,
    SwarmResultRequest,
    SwarmRetryRequest,
    SwarmSpawnRequest,
    SwarmsRequest,
    SwarmStatus,
    SwarmWaitRequest,
)
from goent.domain.types import ENDED_STATES, Method, Value
from goent.operations.provider_queries import ProviderQueries, Recommender, estimate
from goent.swarms.swarm_manager import SwarmManager
from goent.swarms.swarm_merge import SwarmMerger
from goent.workers.feed import Feed
from goent.workers.orchestrator import Orchestrator
from goent.workers.worker_queries import OnProgress, WorkerQueries

BAD_CHOICE = re.compile(r"Invalid enum value (?P<value>.+) - at `\$\.(?P<field>\w+)`", re.DOTALL)
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(?P<field>.+)`$", re.DOTALL)


def explain_bad_argument(error: msgspec.ValidationError, request: type[msgspec.Struct]) -> str:
    """The codec's complaint; where there is a choice of values or names, with all of them."""
    message = str(error)
    fields = {field.name: field.type for field in msgspec.structs.fields(request)}
    if (found := BAD_CHOICE.match(message)) and found["field"] in fields:
        choices = ", ".join(_choices(fields[found["field"]]))
        return f"{found['field']}: {found['value']} is none of {choices}"
    if found := UNKNOWN_FIELD.match(message):
        return f"there is no argument {found['field']!r}, only {', '.join(fields)}"
    return message


def _choices(kind: object) -> list[str]:
    """In the order in which they are written down."""
    if get_origin(kind) is Literal:
        return [str(value) for value in get_args(kind)]
    return [choice for part in get_args(kind) for choice in _choices(part)]


Q = TypeVar("Q", bound=OperationRequest)
R = TypeVar("R", bound=Value)


async def _ignore_progress(_: Status, __: str) -> None: ...


@dataclass(slots=True, kw_only=True)
class Caller:
    """A connection: who is asking, from where, and what it has been given already."""

    name: str
    cwd: Path
    cursors: dict[str, int] = field(default_factory=dict[str, int])
    on_progress: OnProgress = _ignore_progress
    warnings: tuple[str, ...] = ()  # what each of its workers' spawning tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that can be asked. `call` takes the arguments as parsed JSON."""

    name: str
    request: type[OperationRequest]
    reply: type[Value]
    call: Callable[[object, Caller], Awaitable[Value]]


class OperationFactory(Protocol):
    """Makes an operation of what answers it."""

    def __call__(
        self, name: str, request: type[Q], reply: type[R], run: Callable[[Q, Caller], Awaitable[R]]
    ) -> Operation: ...


class EvalOperations:
    """They, bound to whoever runs evaluations for the project."""

    def __init__(self, evaluations: Evaluations) -> None:
        self._evaluations = evaluations

    def table(self, make: OperationFactory) -> tuple[Operation, ...]:
        return (
            make("eval_run", EvalRunRequest, EvalStatus, self._run),
            make("eval_status", EvalStatusRequest, EvalStatus, self._status),
            make("eval_compare", EvalCompareRequest, EvalComparison, self._compare),
        )

    async def _run(self, request: EvalRunRequest, caller: Caller) -> EvalStatus:
        return await self._evaluations.run(request, caller.cwd)

    async def _status(self, request: EvalStatusRequest, caller: Caller) -> EvalStatus:
        return await self._evaluations.status(request, caller.cwd)

    async def _compare(self, request: EvalCompareRequest, caller: Caller) -> EvalComparison:
        return await self._evaluations.compare(request, caller.cwd)


class SwarmOperations:
    """They, bound to one project's swarms."""

    def __init__(self, swarms: SwarmManager, merger: SwarmMerger) -> None:
        self._swarms = swarms
        self._merger = merger

    def table(self, make: OperationFactory) -> tuple[Operation, ...]:
        return (
            make("swarm_spawn", SwarmSpawnRequest, SwarmStatus, self._spawn),
            make("swarm_status", SwarmRequest, SwarmStatus, self._status),
            make("swarm_wait", SwarmWaitRequest, SwarmStatus, self._wait),
            make("swarm_result", SwarmResultRequest, SwarmResult, self._result),
            make("swarm_retry", SwarmRetryRequest, SwarmStatus, self._retry),
            make("swarm_cancel", SwarmCancelRequest, SwarmStatus, self._cancel),
            make("swarm_merge", SwarmMergeRequest, SwarmMergeReply, self._merge),
        )

    def listing(self, make: OperationFactory) -> Operation:
        """For people: no model needs to know."""
        return make("swarm_list", SwarmsRequest, SwarmList, self._list)

    async def _spawn(self, request: SwarmSpawnRequest, caller: Caller) -> SwarmStatus:
        swarm = await self._swarms.spawn(request, caller.cwd)
        wait = SwarmWaitRequest(swarm_id=swarm, timeout_s=request.wait_s)
        return await self._swarms.wait(wait, caller.on_progress)

    async def _status(self, request: SwarmRequest, _: Caller) -> SwarmStatus:
        return self._swarms.status(request.swarm_id)

    async def _wait(self, request: SwarmWaitRequest, caller: Caller) -> SwarmStatus:
        return await self._swarms.wait(request, caller.on_progress)

    async def _result(self, request: SwarmResultRequest, _: Caller) -> SwarmResult:
        return await self._swarms.result(request)

    async def _retry(self, request: SwarmRetryRequest, _: Caller) -> SwarmStatus:
        await self._swarms.retry(request)
        return self._swarms.status(request.swarm_id)

    async def _cancel(self, request: SwarmCancelRequest, caller: Caller) -> SwarmStatus:
        await self._swarms.cancel(request, caller.name)
        return self._swarms.status(request.swarm_id)

    async def _merge(self, request: SwarmMergeRequest, _: Caller) -> SwarmMergeReply:
        return await self._merger.merge(request)

    async def _list(self, _: SwarmsRequest, __: Caller) -> SwarmList:
        return self._swarms.list()


RECENT_WORKERS = 3  # of the project's tasks: how they went is how the next one will probably go
OPENCODE_METHOD: Method = "acp"


class HeadStart:
    """`begin` starts it, unless it runs."""

    def __init__(self, feed: Feed, begin: Callable[[], object]) -> None:
        self._feed = feed
        self._begin = begin
        self._begun = False

    def on_client(self) -> None:
        if OPENCODE_METHOD in self._recent():
            self._start()

    def on_request(self, operation: str, request: Value) -> None:
        """A client's first look at workers. A new task is routed first, which may lead elsewhere."""
        if not operation.startswith("worker_") or isinstance(request, SpawnRequest):
            return
        recent = self._recent()
        if not recent or OPENCODE_METHOD in recent:
            self._start()

    def _recent(self) -> list[Method]:
        return [view.spawned.method for view in list(self._feed.views.values())[-RECENT_WORKERS:]]

    def _start(self) -> None:
        if not self._begun:
            self._begun = True
            self._begin()


API_WAIT_S = 60.0  # one model call: most are over by then

MESSAGE_NOT_PASSED = (
    "this agent takes no words with a no, so its model was not told yours. The worker stays open: if "
    "the no ends its turn, the next worker_prompt brings them along; if not, say them there"
)


class Operations:
    """The table, bound to one project's orchestrator."""

    def __init__(  # noqa: PLR0913 (whoever answers something)
        self,
        orchestrator: Orchestrator,
        queries: WorkerQueries,
        providers: ProviderQueries,
        recommending: Recommender,
        *,
        swarms: SwarmManager,
        merger: SwarmMerger,
        evaluations: Evaluations,
        head_start: HeadStart | None = None,
    ) -> None:
        self._head_start = head_start
        self._workers = orchestrator
        self.swarms = swarms
        calls = SwarmOperations(swarms, merger)
        self._queries = queries
        self._providers = providers
        self._recommender = recommending
        self.calls_in_progress = 0
        self.table: Mapping[str, Operation] = {
            operation.name: operation
            for operation in (
                self._operation("worker_spawn", SpawnRequest, SpawnReply, self._spawn),
                self._operation("worker_prompt", PromptRequest, PromptReply, self._prompt),
                self._operation("worker_status", StatusRequest, Status, self._status),
                self._operation("worker_output", OutputRequest, OutputReply, self._output),
                self._operation("worker_wait", WaitRequest, WaitReply, self._wait),
                self._operation("worker_result", WorkerRequest, Result, self._result),
                self._operation("worker_answer", AnswerRequest, AnswerReply, self._answer),
                self._operation("worker_cancel", CancelRequest, CancelReply, self._cancel),
                self._operation("worker_list", ListRequest, WorkerList, self._list),
                self._operation(
                    "provider_list", ProvidersRequest, ProviderList, self._list_providers
                ),
                self._operation(
                    "provider_recommend", RecommendRequest, RecommendReply, self._recommend
                ),
                self._operation(
                    "agent_spawn_acp", AgentSpawnRequest, SpawnReply, self._agent_spawn
                ),
                self._operation(
                    "agent_prompt_acp", AgentPromptRequest, PromptReply, self._agent_prompt
                ),
                self._operation(
                    "agent_cancel_acp", AgentCancelRequest, CancelReply, self._agent_cancel
                ),
                self._operation("cost_report", CostsRequest, Costs, self._costs),
                *calls.table(self._operation),
                *EvalOperations(evaluations).table(self._operation),
            )
        }
        # What people do at the terminal, and no model needs to know.
        self.cli_table: Mapping[str, Operation] = {
            operation.name: operation
            for operation in (
                self._operation("provider_reset", ForgetRequest, ForgetReply, self._forget),
                self._operation("routes_list", RulesRequest, RuleList, self._rules),
                self._operation("routes_explain", RecommendRequest, ExplainReply, self._explain),
                self._operation("routes_learned", LearnedRequest, LearnedReply, self._learned),
                calls.listing(self._operation),
                self._operation("spaces_list", SpacesRequest, SpaceList, self._spaces),
                self._operation("spaces_clear", ClearRequest, ClearReply, self._clear),
            )
        }

    @contextmanager
    def answering(self) -> Generator[None]:
        """A call counts as under way while a frontend is inside this."""
        self.calls_in_progress += 1
        try:
            yield
        finally:
            self.calls_in_progress -= 1

    async def _spawn(self, request: SpawnRequest, caller: Caller) -> SpawnReply:
        worker, spawned, forecast = await self._workers.spawn(request, caller.cwd)
        wait = request.wait_s
        if wait is None:
            wait = API_WAIT_S if spawned.method == "api" else 0.0
        status = await self._waited(worker, wait, caller)
        return SpawnReply(
            worker_id=worker,
            state=status.state,
            evidence=status.evidence,
            provider=spawned.provider,
            model=spawned.model,
            method=spawned.method,
            reason=spawned.reason,
            cwd=spawned.cwd,
            estimate=estimate(forecast),
            warnings=(*spawned.warnings, *caller.warnings, *self._recommender.notices),
            sandbox=spawned.sandbox,
            result=await self._queries.result(worker) if status.state in ENDED_STATES else None,
        )

    async def _prompt(self, request: PromptRequest, caller: Caller) -> PromptReply:
        turn = await self._workers.prompt(request)
        status = await self._waited(request.worker_id, request.wait_s, caller, turn)
        ended = status.turn == turn and status.state in ENDED_STATES
        return PromptReply(
            worker_id=request.worker_id,
            turn=turn,
            state=status.state if status.turn == turn else "starting",
            evidence=status.evidence if status.turn == turn else None,
            result=await self._queries.result(request.worker_id) if ended else None,
        )

    async def _waited(self, worker: str, seconds: float, caller: Caller, turn: int = 1) -> Status:
        """The status once the turn has ended or asks something, or when the time is up."""
        with anyio.move_on_after(seconds):
            await self._queries.wait_for_turn(worker, turn)
            wait = WaitRequest(worker_ids=(worker,), timeout_s=seconds)
            await self._queries.wait(wait, caller.on_progress, turn=turn)
        return self._queries.status(worker)

    async def _status(self, request: StatusRequest, _: Caller) -> Status:
        return self._queries.status(request.worker_id)

    async def _output(self, request: OutputRequest, caller: Caller) -> OutputReply:
        last = caller.cursors.get(request.worker_id, 0) if request.since_last else 0
        after = last if request.cursor is None else request.cursor
        output = await self._queries.output(request, after)
        if request.since_last:
            caller.cursors[request.worker_id] = output.cursor
        return output

    async def _wait(self, request: WaitRequest, caller: Caller) -> WaitReply:
        return await self._queries.wait(request, caller.on_progress)

    async def _result(self, request: WorkerRequest, _: Caller) -> Result:
        return await self._queries.result(request.worker_id)

    async def _answer(self, request: AnswerRequest, caller: Caller) -> AnswerReply:
        passed = await self._workers.answer(request, caller.name)
        status = self._queries.status(request.worker_id)
        if not request.message.strip():
            return AnswerReply(state=status.state, evidence=status.evidence)
        return AnswerReply(
            state=status.state,
            evidence=status.evidence,
            message_passed=passed,
            note="" if passed else MESSAGE_NOT_PASSED,
        )

    async def _cancel(self, request: CancelRequest, caller: Caller) -> CancelReply:
        await self._workers.cancel(request, caller.name)
        result = await self._queries.result(request.worker_id)
        return CancelReply(state=result.state, evidence=result.evidence, result=result)

    async def _list(self, request: ListRequest, _: Caller) -> WorkerList:
        return self._queries.list(request)

    async def _list_providers(self, request: ProvidersRequest, _: Caller) -> ProviderList:
        found = await self._providers.list(request)
        return replace(found, warnings=(*self._recommender.notices, *found.warnings))

    async def _recommend(self, request: RecommendRequest, caller: Caller) -> RecommendReply:
        return await self._recommender.recommend(request, caller.cwd)

    async def _explain(self, request: RecommendRequest, caller: Caller) -> ExplainReply:
        return await self._recommender.explain(request, caller.cwd)

    async def _rules(self, _: RulesRequest, __: Caller) -> RuleList:
        return self._recommender.rules()

    async def _learned(self, _: LearnedRequest, __: Caller) -> LearnedReply:
        return await self._recommender.learned()

    async def _spaces(self, _: SpacesRequest, __: Caller) -> SpaceList:
        return await self._workers.worker_folders.list_spaces()

    async def _clear(self, request: ClearRequest, _: Caller) -> ClearReply:
        return await self._workers.worker_folders.clear_spaces(request)

    async def _forget(self, request: ForgetRequest, _: Caller) -> ForgetReply:
        return await self._providers.forget(request)

    async def _costs(self, request: CostsRequest, _: Caller) -> Costs:
        return await self._providers.costs(request)

    # Workers on agents, by the names that they have in ACP

    async def _agent_spawn(self, request: AgentSpawnRequest, caller: Caller) -> SpawnReply:
        return await self._spawn(request.as_spawn(), caller)

    async def _agent_prompt(self, request: AgentPromptRequest, caller: Caller) -> PromptReply:
        self._check_agent(request)
        return await self._prompt(request.as_prompt(), caller)

    async def _agent_cancel(self, request: AgentCancelRequest, caller: Caller) -> CancelReply:
        self._check_agent(request)
        return await self._cancel(CancelRequest(worker_id=request.worker_id), caller)

    def _check_agent(self, request: WorkerRequest) -> None:
        method = self._queries.status(request.worker_id).method
        if method != "agent":
            raise RequestError(
                f"worker {request.worker_id!r} runs by {method!r}, not on an agent: use "
                "worker_prompt and worker_cancel"
            )

    def _operation(
        self, name: str, request: type[Q], reply: type[R], run: Callable[[Q, Caller], Awaitable[R]]
    ) -> Operation:
        async def call(arguments: object, caller: Caller) -> R:
            try:
                asked = msgspec.convert(arguments, request, strict=False)
            except msgspec.ValidationError as error:
                raise RequestError(f"{name}: {explain_bad_argument(error, request)}") from None
            await self._queries.recall(asked)
            if self._head_start and caller.name == "mcp":
                self._head_start.on_request(name, asked)
            return await run(asked, caller)

        return Operation(name=name, request=request, reply=reply, call=call)
