"""Everything a client can ask for, by name: one table for MCP, the socket and the CLI."""

from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager

import anyio
import msgspec
from msgspec.structs import replace

from goent.core.enquiries import Enquiries
from goent.core.evaluating import EvalCalls
from goent.core.head_start import HeadStart
from goent.core.mistakes import explained
from goent.core.operation import Caller, Operation, Q, R
from goent.core.orchestrator import Orchestrator
from goent.core.providers import Providers
from goent.core.recommending import Recommending, estimate
from goent.core.swarms.calls import SwarmCalls
from goent.core.swarms.merging import SwarmMerger
from goent.core.swarms.swarms import Swarms
from goent.domain.errors import RequestError
from goent.domain.evaluations import Evaluations
from goent.domain.learned import Learned, LearnedRequest
from goent.domain.provider_replies import (
    Costs,
    Explained,
    Forgotten,
    ProviderList,
    Recommended,
    RuleList,
)
from goent.domain.replies import (
    Answered,
    Cancelled,
    Cleared,
    Output,
    Prompted,
    Result,
    SpaceList,
    Spawned,
    Status,
    Waited,
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
    ListRequest,
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
from goent.domain.types import ENDED

API_WAIT_S = 60.0  # one model call: most are over by then

NOT_PASSED = (
    "this agent takes no words with a no, so its model was not told yours. The worker stays open: if "
    "the no ends its turn, the next worker_prompt brings them along; if not, say them there"
)


class Operations:
    """The table, bound to one project's orchestrator."""

    def __init__(  # noqa: PLR0913 (whoever answers something)
        self,
        orchestrator: Orchestrator,
        enquiries: Enquiries,
        providers: Providers,
        recommending: Recommending,
        *,
        swarms: Swarms,
        merger: SwarmMerger,
        evaluations: Evaluations,
        head_start: HeadStart | None = None,
    ) -> None:
        self._head_start = head_start
        self._workers = orchestrator
        self.swarms = swarms
        calls = SwarmCalls(swarms, merger)
        self._ask = enquiries
        self._providers = providers
        self._recommending = recommending
        self.under_way = 0
        self.table: Mapping[str, Operation] = {
            operation.name: operation
            for operation in (
                self._operation("worker_spawn", SpawnRequest, Spawned, self._spawn),
                self._operation("worker_prompt", PromptRequest, Prompted, self._prompt),
                self._operation("worker_status", StatusRequest, Status, self._status),
                self._operation("worker_output", OutputRequest, Output, self._output),
                self._operation("worker_wait", WaitRequest, Waited, self._wait),
                self._operation("worker_result", WorkerRequest, Result, self._result),
                self._operation("worker_answer", AnswerRequest, Answered, self._answer),
                self._operation("worker_cancel", CancelRequest, Cancelled, self._cancel),
                self._operation("worker_list", ListRequest, WorkerList, self._list),
                self._operation(
                    "provider_list", ProvidersRequest, ProviderList, self._list_providers
                ),
                self._operation(
                    "provider_recommend", RecommendRequest, Recommended, self._recommend
                ),
                self._operation("agent_spawn_acp", AgentSpawnRequest, Spawned, self._agent_spawn),
                self._operation(
                    "agent_prompt_acp", AgentPromptRequest, Prompted, self._agent_prompt
                ),
                self._operation(
                    "agent_cancel_acp", AgentCancelRequest, Cancelled, self._agent_cancel
                ),
                self._operation("cost_report", CostsRequest, Costs, self._costs),
                *calls.table(self._operation),
                *EvalCalls(evaluations).table(self._operation),
            )
        }
        # What people do at the terminal, and no model needs to know.
        self.for_people: Mapping[str, Operation] = {
            operation.name: operation
            for operation in (
                self._operation("provider_reset", ForgetRequest, Forgotten, self._forget),
                self._operation("routes_list", RulesRequest, RuleList, self._rules),
                self._operation("routes_explain", RecommendRequest, Explained, self._explain),
                self._operation("routes_learned", LearnedRequest, Learned, self._learned),
                calls.listing(self._operation),
                self._operation("spaces_list", SpacesRequest, SpaceList, self._spaces),
                self._operation("spaces_clear", ClearRequest, Cleared, self._clear),
            )
        }

    @contextmanager
    def answering(self) -> Generator[None]:
        """A call counts as under way while a frontend is inside this."""
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1

    async def _spawn(self, request: SpawnRequest, caller: Caller) -> Spawned:
        worker, spawned, forecast = await self._workers.spawn(request, caller.cwd)
        wait = request.wait_s
        if wait is None:
            wait = API_WAIT_S if spawned.method == "api" else 0.0
        status = await self._waited(worker, wait, caller)
        return Spawned(
            worker_id=worker,
            state=status.state,
            evidence=status.evidence,
            provider=spawned.provider,
            model=spawned.model,
            method=spawned.method,
            reason=spawned.reason,
            cwd=spawned.cwd,
            estimate=estimate(forecast),
            warnings=(*spawned.warnings, *caller.warnings, *self._recommending.notices),
            sandbox=spawned.sandbox,
            result=await self._ask.result(worker) if status.state in ENDED else None,
        )

    async def _prompt(self, request: PromptRequest, caller: Caller) -> Prompted:
        turn = await self._workers.prompt(request)
        status = await self._waited(request.worker_id, request.wait_s, caller, turn)
        ended = status.turn == turn and status.state in ENDED
        return Prompted(
            worker_id=request.worker_id,
            turn=turn,
            state=status.state if status.turn == turn else "starting",
            evidence=status.evidence if status.turn == turn else None,
            result=await self._ask.result(request.worker_id) if ended else None,
        )

    async def _waited(self, worker: str, seconds: float, caller: Caller, turn: int = 1) -> Status:
        """The status once the turn has ended or asks something, or when the time is up."""
        with anyio.move_on_after(seconds):
            await self._ask.turn_begun(worker, turn)
            wait = WaitRequest(worker_ids=(worker,), timeout_s=seconds)
            await self._ask.wait(wait, caller.on_progress, turn=turn)
        return self._ask.status(worker)

    async def _status(self, request: StatusRequest, _: Caller) -> Status:
        return self._ask.status(request.worker_id)

    async def _output(self, request: OutputRequest, caller: Caller) -> Output:
        last = caller.cursors.get(request.worker_id, 0) if request.since_last else 0
        after = last if request.cursor is None else request.cursor
        output = await self._ask.output(request, after)
        if request.since_last:
            caller.cursors[request.worker_id] = output.cursor
        return output

    async def _wait(self, request: WaitRequest, caller: Caller) -> Waited:
        return await self._ask.wait(request, caller.on_progress)

    async def _result(self, request: WorkerRequest, _: Caller) -> Result:
        return await self._ask.result(request.worker_id)

    async def _answer(self, request: AnswerRequest, caller: Caller) -> Answered:
        passed = await self._workers.answer(request, caller.name)
        status = self._ask.status(request.worker_id)
        if not request.message.strip():
            return Answered(state=status.state, evidence=status.evidence)
        return Answered(
            state=status.state,
            evidence=status.evidence,
            message_passed=passed,
            note="" if passed else NOT_PASSED,
        )

    async def _cancel(self, request: CancelRequest, caller: Caller) -> Cancelled:
        await self._workers.cancel(request, caller.name)
        result = await self._ask.result(request.worker_id)
        return Cancelled(state=result.state, evidence=result.evidence, result=result)

    async def _list(self, request: ListRequest, _: Caller) -> WorkerList:
        return self._ask.list(request)

    async def _list_providers(self, request: ProvidersRequest, _: Caller) -> ProviderList:
        found = await self._providers.list(request)
        return replace(found, warnings=(*self._recommending.notices, *found.warnings))

    async def _recommend(self, request: RecommendRequest, caller: Caller) -> Recommended:
        return await self._recommending.recommend(request, caller.cwd)

    async def _explain(self, request: RecommendRequest, caller: Caller) -> Explained:
        return await self._recommending.explain(request, caller.cwd)

    async def _rules(self, _: RulesRequest, __: Caller) -> RuleList:
        return self._recommending.rules()

    async def _learned(self, _: LearnedRequest, __: Caller) -> Learned:
        return await self._recommending.learned()

    async def _spaces(self, _: SpacesRequest, __: Caller) -> SpaceList:
        return await self._workers.places.listed()

    async def _clear(self, request: ClearRequest, _: Caller) -> Cleared:
        return await self._workers.places.cleared(request)

    async def _forget(self, request: ForgetRequest, _: Caller) -> Forgotten:
        return await self._providers.forget(request)

    async def _costs(self, request: CostsRequest, _: Caller) -> Costs:
        return await self._providers.costs(request)

    # Workers on agents, by the names that they have in ACP

    async def _agent_spawn(self, request: AgentSpawnRequest, caller: Caller) -> Spawned:
        return await self._spawn(request.as_spawn(), caller)

    async def _agent_prompt(self, request: AgentPromptRequest, caller: Caller) -> Prompted:
        self._check_agent(request)
        return await self._prompt(request.as_prompt(), caller)

    async def _agent_cancel(self, request: AgentCancelRequest, caller: Caller) -> Cancelled:
        self._check_agent(request)
        return await self._cancel(CancelRequest(worker_id=request.worker_id), caller)

    def _check_agent(self, request: WorkerRequest) -> None:
        method = self._ask.status(request.worker_id).method
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
                raise RequestError(f"{name}: {explained(error, request)}") from None
            await self._ask.recall(asked)
            if self._head_start and caller.name == "mcp":
                self._head_start.asked(name, asked)
            return await run(asked, caller)

        return Operation(name=name, request=request, reply=reply, call=call)
