"""Defines everything a client can call by name: one table for MCP, the socket and the CLI."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

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
from goent.domain.input_mistakes import ARGUMENTS, explain_mistake
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

Q = TypeVar("Q", bound=OperationRequest)
R = TypeVar("R", bound=Value)

API_WAIT_S: Final = 60.0  # one model call: most have ended by then
MESSAGE_NOT_PASSED: Final = (
    "this agent takes no message with a rejection, so its model did not get yours. The worker stays "
    "open: if the rejection ends its turn, the next worker_prompt includes the message; if not, "
    "say it there"
)
RECENT_WORKERS: Final = 3  # of the project; the next task will probably run like these
OPENCODE_METHOD: Final[Method] = "acp"


async def _ignore_progress(_: Status, __: str) -> None: ...


@dataclass(slots=True, kw_only=True)
class Caller:
    """A connection: who asks, from which folder, and how much output it has read."""

    name: str
    cwd: Path
    cursors: dict[str, int] = field(default_factory=dict[str, int])
    on_progress: OnProgress = _ignore_progress
    warnings: tuple[str, ...] = ()  # added to the reply of every spawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation. `call` takes the arguments as parsed JSON."""

    name: str
    request: type[OperationRequest]
    reply: type[Value]
    call: Callable[[object, Caller], Awaitable[Value]]


class Operations:
    """The operations of one project: `table` for all clients, `cli_table` for the terminal alone."""

    def __init__(  # noqa: PLR0913 (whoever answers something)
        self,
        orchestrator: Orchestrator,
        queries: WorkerQueries,
        providers: ProviderQueries,
        recommender: Recommender,
        *,
        swarms: SwarmManager,
        merger: SwarmMerger,
        evaluations: Evaluations,
        head_start: "HeadStart | None" = None,
    ) -> None:
        self._workers = orchestrator
        self._queries = queries
        self._providers = providers
        self._recommender = recommender
        self.swarms = swarms
        self._merger = merger
        self._evaluations = evaluations
        self._head_start = head_start
        self.calls_in_progress = 0
        self.table = _by_name(
            *self._worker_operations(),
            *self._provider_operations(),
            *self._agent_operations(),
            *self._swarm_operations(),
            *self._eval_operations(),
        )
        self.cli_table = _by_name(*self._cli_operations())

    @contextmanager
    def answering(self) -> Generator[None]:
        """Counts a call as in progress while a frontend is inside."""
        self.calls_in_progress += 1
        try:
            yield
        finally:
            self.calls_in_progress -= 1

    def _operation(
        self,
        name: str,
        request: type[Q],
        reply: type[R],
        run: Callable[[Q, Caller], Awaitable[R] | R],
    ) -> Operation:
        async def call(arguments: object, caller: Caller) -> R:
            try:
                asked = msgspec.convert(arguments, request, strict=False)
            except msgspec.ValidationError as error:
                mistake = explain_mistake(error, arguments, request, ARGUMENTS)
                raise RequestError(f"{name}: {mistake}") from None
            await self._queries.recall(asked)
            if self._head_start and caller.name == "mcp":
                self._head_start.on_request(name, asked)
            answer = run(asked, caller)
            return answer if isinstance(answer, Value) else await answer

        return Operation(name=name, request=request, reply=reply, call=call)

    # Workers

    def _worker_operations(self) -> tuple[Operation, ...]:
        make, queries = self._operation, self._queries
        return (
            make("worker_spawn", SpawnRequest, SpawnReply, self._spawn),
            make("worker_prompt", PromptRequest, PromptReply, self._prompt),
            make("worker_status", StatusRequest, Status, lambda r, _: queries.status(r.worker_id)),
            make("worker_output", OutputRequest, OutputReply, self._output),
            make(
                "worker_wait", WaitRequest, WaitReply, lambda r, c: queries.wait(r, c.on_progress)
            ),
            make("worker_result", WorkerRequest, Result, lambda r, _: queries.result(r.worker_id)),
            make("worker_answer", AnswerRequest, AnswerReply, self._answer),
            make("worker_cancel", CancelRequest, CancelReply, self._cancel),
            make("worker_list", ListRequest, WorkerList, lambda r, _: queries.list(r)),
        )

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
        """The status once the turn has ended or asks a question, or the time is up."""
        with anyio.move_on_after(seconds):
            await self._queries.wait_for_turn(worker, turn)
            wait = WaitRequest(worker_ids=(worker,), timeout_s=seconds)
            await self._queries.wait(wait, caller.on_progress, turn=turn)
        return self._queries.status(worker)

    async def _output(self, request: OutputRequest, caller: Caller) -> OutputReply:
        last = caller.cursors.get(request.worker_id, 0) if request.since_last else 0
        after = last if request.cursor is None else request.cursor
        output = await self._queries.output(request, after)
        if request.since_last:
            caller.cursors[request.worker_id] = output.cursor
        return output

    async def _answer(self, request: AnswerRequest, caller: Caller) -> AnswerReply:
        passed = await self._workers.answer(request, caller.name)
        status = self._queries.status(request.worker_id)
        reply = AnswerReply(state=status.state, evidence=status.evidence)
        if not request.message.strip():
            return reply
        return replace(reply, message_passed=passed, note="" if passed else MESSAGE_NOT_PASSED)

    async def _cancel(self, request: CancelRequest, caller: Caller) -> CancelReply:
        await self._workers.cancel(request, caller.name)
        result = await self._queries.result(request.worker_id)
        return CancelReply(state=result.state, evidence=result.evidence, result=result)

    # Workers on agents, by the names that they have in ACP

    def _agent_operations(self) -> tuple[Operation, ...]:
        make = self._operation
        return (
            make(
                "agent_spawn_acp",
                AgentSpawnRequest,
                SpawnReply,
                lambda r, c: self._spawn(r.as_spawn(), c),
            ),
            make("agent_prompt_acp", AgentPromptRequest, PromptReply, self._agent_prompt),
            make("agent_cancel_acp", AgentCancelRequest, CancelReply, self._agent_cancel),
        )

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

    # Providers, routes and workspaces

    def _provider_operations(self) -> tuple[Operation, ...]:
        make, advice = self._operation, self._recommender
        return (
            make("provider_list", ProvidersRequest, ProviderList, self._list_providers),
            make(
                "provider_recommend",
                RecommendRequest,
                RecommendReply,
                lambda r, c: advice.recommend(r, c.cwd),
            ),
            make("cost_report", CostsRequest, Costs, lambda r, _: self._providers.costs(r)),
        )

    async def _list_providers(self, request: ProvidersRequest, _: Caller) -> ProviderList:
        found = await self._providers.list(request)
        return replace(found, warnings=(*self._recommender.notices, *found.warnings))

    def _cli_operations(self) -> tuple[Operation, ...]:
        make, advice = self._operation, self._recommender
        folders, providers = self._workers.worker_folders, self._providers
        return (
            make("provider_reset", ForgetRequest, ForgetReply, lambda r, _: providers.forget(r)),
            make("routes_list", RulesRequest, RuleList, lambda _, __: advice.rules()),
            make(
                "routes_explain",
                RecommendRequest,
                ExplainReply,
                lambda r, c: advice.explain(r, c.cwd),
            ),
            make("routes_learned", LearnedRequest, LearnedReply, lambda _, __: advice.learned()),
            make("swarm_list", SwarmsRequest, SwarmList, lambda _, __: self.swarms.list()),
            make("spaces_list", SpacesRequest, SpaceList, lambda _, __: folders.list_spaces()),
            make("spaces_clear", ClearRequest, ClearReply, lambda r, _: folders.clear_spaces(r)),
        )

    # Swarms

    def _swarm_operations(self) -> tuple[Operation, ...]:
        make, swarms = self._operation, self.swarms
        return (
            make("swarm_spawn", SwarmSpawnRequest, SwarmStatus, self._swarm_spawn),
            make("swarm_status", SwarmRequest, SwarmStatus, lambda r, _: swarms.status(r.swarm_id)),
            make(
                "swarm_wait",
                SwarmWaitRequest,
                SwarmStatus,
                lambda r, c: swarms.wait(r, c.on_progress),
            ),
            make("swarm_result", SwarmResultRequest, SwarmResult, lambda r, _: swarms.result(r)),
            make("swarm_retry", SwarmRetryRequest, SwarmStatus, self._swarm_retry),
            make("swarm_cancel", SwarmCancelRequest, SwarmStatus, self._swarm_cancel),
            make(
                "swarm_merge",
                SwarmMergeRequest,
                SwarmMergeReply,
                lambda r, _: self._merger.merge(r),
            ),
        )

    async def _swarm_spawn(self, request: SwarmSpawnRequest, caller: Caller) -> SwarmStatus:
        swarm = await self.swarms.spawn(request, caller.cwd)
        wait = SwarmWaitRequest(swarm_id=swarm, timeout_s=request.wait_s)
        return await self.swarms.wait(wait, caller.on_progress)

    async def _swarm_retry(self, request: SwarmRetryRequest, _: Caller) -> SwarmStatus:
        await self.swarms.retry(request)
        return self.swarms.status(request.swarm_id)

    async def _swarm_cancel(self, request: SwarmCancelRequest, caller: Caller) -> SwarmStatus:
        await self.swarms.cancel(request, caller.name)
        return self.swarms.status(request.swarm_id)

    # Evaluations

    def _eval_operations(self) -> tuple[Operation, ...]:
        make, runs = self._operation, self._evaluations
        return (
            make("eval_run", EvalRunRequest, EvalStatus, lambda r, c: runs.run(r, c.cwd)),
            make("eval_status", EvalStatusRequest, EvalStatus, lambda r, c: runs.status(r, c.cwd)),
            make(
                "eval_compare",
                EvalCompareRequest,
                EvalComparison,
                lambda r, c: runs.compare(r, c.cwd),
            ),
        )


def _by_name(*operations: Operation) -> Mapping[str, Operation]:
    return {operation.name: operation for operation in operations}


class HeadStart:
    """Starts OpenCode early, once, if the next task will probably need it.

    OpenCode takes hundreds of megabytes, so a client that only connects, or that works by other
    methods, starts none. A task that is routed to OpenCode starts it in any case.
    """

    def __init__(self, feed: Feed, begin: Callable[[], object]) -> None:
        self._feed = feed
        self._begin = begin
        self._begun = False

    def on_client(self) -> None:
        if OPENCODE_METHOD in self._recent_methods():
            self._start()

    def on_request(self, operation: str, request: Value) -> None:
        """A client's first look at workers. A new task is routed first, possibly elsewhere."""
        if not operation.startswith("worker_") or isinstance(request, SpawnRequest):
            return
        recent = self._recent_methods()
        if not recent or OPENCODE_METHOD in recent:
            self._start()

    def _recent_methods(self) -> list[Method]:
        return [view.spawned.method for view in list(self._feed.views.values())[-RECENT_WORKERS:]]

    def _start(self) -> None:
        if not self._begun:
            self._begun = True
            self._begin()
