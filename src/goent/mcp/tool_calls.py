"""Answers tool calls: immediately, after a wait, as a task, or with a question of its own.

The call itself is made first, without any waiting, so that a refusal or a worker's id is there at
once. Then it is waited for, question by question. Where a client is asked by way of an answer to
its own call, the wait is put into words (`stored`) and taken up again when the client comes back.

A call that waits is made in one of four ways, by what its client can do: tasks, where the client
offers them; forms by a request to the client (handshake era) or by the answer to its call (the
era after); and without either, the plain operation, which returns when a worker asks something.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import anyio
import msgspec
from mcp import types
from mcp.shared.exceptions import MCPError
from msgspec import Raw, structs

from goent.domain.errors import Ending, GoentError, RequestError
from goent.domain.replies import PromptReply, Question, SpawnReply, Status, WaitReply
from goent.domain.requests import (
    MAX_WAIT_S,
    PromptRequest,
    SpawnRequest,
    StatusRequest,
    WaitRequest,
)
from goent.domain.swarm_messages import (
    ENDED_SWARM_STATES,
    ENDED_TASK_STATES,
    SwarmSpawnRequest,
    SwarmStatus,
    SwarmWaitRequest,
)
from goent.domain.types import ENDED_STATES, Value
from goent.domain.verification import outcome_words
from goent.mcp.call_tasks import MAX_TASK_S, CallTask, CallTasks, offers_tasks
from goent.mcp.elicitation import (
    ANSWERED_BY,
    MAX_REPLY_DETAIL_CHARS,
    FormOutcome,
    McpContext,
    QuestionRef,
    form_answer,
    is_modern,
    question_form,
    question_ref,
    shorten_question,
    supports_forms,
)
from goent.operations.operation_table import Caller, Operation, Operations
from goent.workers.worker_queries import OnProgress, WorkerQueries

WaitedReply = SpawnReply | PromptReply | WaitReply | SwarmStatus
AskPerson = Callable[[Status, Question], Awaitable[FormOutcome]]

WAIT_FIELDS = {
    "worker_spawn": "wait_s",
    "worker_prompt": "wait_s",
    "worker_wait": "timeout_s",
    "swarm_spawn": "wait_s",
    "swarm_wait": "timeout_s",
}
REPLY_TYPES: dict[str, type[WaitedReply]] = {
    "worker_spawn": SpawnReply,
    "worker_prompt": PromptReply,
    "worker_wait": WaitReply,
    "swarm_spawn": SwarmStatus,
    "swarm_wait": SwarmStatus,
}
MAX_FORMS = 8  # that a call may answer with; a client gives up on its own after ten


class CallWait(Value, frozen=True, kw_only=True):
    """A call under way: the reply as it stands, and the seconds that are left to wait."""

    reply: WaitedReply
    seconds_left: float
    any: bool = False
    forms: int = 0

    @property
    def worker_ids(self) -> tuple[str, ...]:
        if isinstance(self.reply, WaitReply):
            return tuple(status.worker_id for status in self.reply.workers)
        if isinstance(self.reply, SwarmStatus):
            living = [line for line in self.reply.tasks if line.state not in ENDED_TASK_STATES]
            return tuple(line.worker_id for line in living if line.worker_id)
        return (self.reply.worker_id,)


class _StoredWait(Value, frozen=True, kw_only=True):
    tool: str
    reply: Raw
    left: float
    any: bool
    forms: int
    asked: QuestionRef


def wait_seconds(operation: Operation, arguments: Mapping[str, object]) -> float:
    """How long the call wants to wait; 0 also for one that is about to be refused."""
    try:
        request = msgspec.convert(arguments, operation.request, strict=False)
    except msgspec.ValidationError:
        return 0.0
    match request:
        case WaitRequest() | SwarmWaitRequest():
            return request.timeout_s
        case SpawnRequest() | PromptRequest() | SwarmSpawnRequest():
            return request.wait_s or 0.0
        case _:
            return 0.0


def encode_wait(wait: CallWait, tool: str, asked: QuestionRef) -> str:
    """Plain, not sealed: it lets a client do nothing that `worker_wait` would not."""
    state = _StoredWait(
        tool=tool,
        reply=Raw(msgspec.json.encode(wait.reply)),
        left=wait.seconds_left,
        any=wait.any,
        forms=wait.forms + 1,
        asked=asked,
    )
    return msgspec.json.encode(state).decode()


class CallWaiter:
    """Waits on behalf of callers, and passes on what they answer."""

    def __init__(self, operations: Operations, enquiries: WorkerQueries) -> None:
        self._operations = operations
        self._enquiries = enquiries

    async def start(
        self, operation: Operation, arguments: Mapping[str, object], left: float, caller: Caller
    ) -> CallWait:
        """The call made, and nothing waited for yet."""
        at_once = {**arguments, WAIT_FIELDS[operation.name]: 0}
        reply = await operation.call(at_once, caller)
        assert isinstance(reply, WaitedReply), "only these wait"
        if not isinstance(reply, WaitReply):
            return CallWait(reply=reply, seconds_left=left)
        asked = msgspec.convert(arguments, WaitRequest, strict=False)
        return CallWait(reply=reply, seconds_left=left, any=asked.any)

    async def resume(self, state: str, tool: str) -> tuple[CallWait, QuestionRef]:
        """What `stored` put into words."""
        try:
            found = msgspec.json.decode(state, type=_StoredWait)
            reply = msgspec.json.decode(found.reply, type=REPLY_TYPES[tool])
        except (msgspec.DecodeError, KeyError) as error:
            raise RequestError(f"requestState {state[:80]!r} is not go-ent's: {error}") from None
        if found.tool != tool or not 0 <= found.left <= MAX_WAIT_S:
            raise RequestError(f"requestState is of {found.tool!r}, the call is {tool!r}")
        wait = CallWait(reply=reply, seconds_left=found.left, any=found.any, forms=found.forms)
        await self._enquiries.recall(WaitRequest(worker_ids=wait.worker_ids))
        return wait, found.asked

    async def wait_for_question(self, wait: CallWait, caller: Caller) -> CallWait:
        """Until the workers have ended, the time is up, or one has a question."""
        while wait.seconds_left > 0 and not self.is_over(wait) and not self.open_question(wait):
            wait = await self.wait_more(wait, caller)
        return wait

    async def wait_to_end(self, wait: CallWait, caller: Caller, ask: AskPerson) -> WaitedReply:
        """Until the workers have ended or the time is up; questions are asked on the way."""
        wait = await self.wait_for_question(wait, caller)
        while asked := self.open_question(wait):
            status, question = asked
            outcome = await ask(status, question)
            if outcome is None:
                break
            await self.answer_worker(outcome, question_ref(status, question), caller)
            wait = await self.wait_for_question(await self.wait_more(wait, caller), caller)
        return wait.reply

    def open_question(self, wait: CallWait) -> tuple[Status, Question] | None:
        if self.is_over(wait):
            return None
        for status in map(self._enquiries.status, wait.worker_ids):
            if status.permission:
                return status, status.permission
        return None

    async def answer_worker(self, outcome: FormOutcome, asked: QuestionRef, caller: Caller) -> None:
        """The answer to the worker; somebody else may have been faster, and that is no harm."""
        if outcome is None or outcome == "elsewhere":
            return
        answer = {
            "worker_id": asked.worker_id,
            "permission_id": asked.permission_id,
            "option": outcome.answer,
            "message": outcome.instead,
        }
        with suppress(RequestError):
            await self._operations.table["worker_answer"].call(
                answer, replace(caller, name=ANSWERED_BY)
            )

    async def wait_more(self, wait: CallWait, caller: Caller) -> CallWait:
        """Wait some more, until there is something to look at."""
        begun = anyio.current_time()
        reply, limit = wait.reply, min(wait.seconds_left, MAX_WAIT_S)
        with anyio.move_on_after(limit):
            if isinstance(reply, SwarmStatus):
                asked = {"swarm_id": reply.swarm_id, "timeout_s": limit}
                await self._operations.table["swarm_wait"].call(asked, caller)
            else:
                if isinstance(reply, PromptReply):
                    await self._enquiries.wait_for_turn(reply.worker_id, reply.turn)
                request = WaitRequest(worker_ids=wait.worker_ids, any=wait.any, timeout_s=limit)
                await self._enquiries.wait(request, caller.on_progress)
        left = max(0.0, wait.seconds_left - (anyio.current_time() - begun))
        return msgspec.structs.replace(wait, reply=await self.refresh(wait), seconds_left=left)

    async def refresh(self, wait: CallWait) -> WaitedReply:
        """The reply as it would be now."""
        reply = wait.reply
        if isinstance(reply, SwarmStatus):
            return self._operations.swarms.status(reply.swarm_id)
        if isinstance(reply, WaitReply):
            request = WaitRequest(worker_ids=wait.worker_ids, any=wait.any, timeout_s=0)
            return await self._enquiries.wait(request, _no_report)
        status = self._enquiries.status(reply.worker_id)
        state = status.state
        if isinstance(reply, PromptReply) and status.turn != reply.turn:
            state = "starting"
        ended = state in ENDED_STATES
        result = await self._enquiries.result(reply.worker_id) if ended else None
        evidence = result.evidence if result else None
        return msgspec.structs.replace(reply, state=state, evidence=evidence, result=result)

    def is_over(self, wait: CallWait) -> bool:
        """Whether the workers have ended; a question is not an end."""
        if isinstance(wait.reply, SwarmStatus):
            return self._operations.swarms.status(wait.reply.swarm_id).state in ENDED_SWARM_STATES
        statuses = [self._enquiries.status(worker) for worker in wait.worker_ids]
        if isinstance(wait.reply, PromptReply):
            turn, (status,) = wait.reply.turn, statuses
            ended = status.turn == turn and status.state in ENDED_STATES
            return ended or status.turn > turn or not status.open
        ended = [status.state in ENDED_STATES for status in statuses]
        return any(ended) if wait.any else all(ended)


async def _no_report(_: Status, __: str) -> None: ...


ENDING_CODE = -32000

ToolCallAnswer = types.CallToolResult | types.InputRequiredResult | dict[str, Any]

log = logging.getLogger(__name__)


class ToolCalls:
    """Answers the tool calls of any number of connections."""

    def __init__(self, operations: Operations, enquiries: WorkerQueries) -> None:
        self._operations = operations
        self._table = operations.table
        self._enquiries = enquiries
        self._waiting = CallWaiter(operations, enquiries)

    async def answer(
        self, context: McpContext, params: types.CallToolRequestParams, caller: Caller
    ) -> ToolCallAnswer:
        operation = self._table.get(params.name)
        if operation is None:
            return _error_result(
                f"unknown tool {params.name!r}; there are: {', '.join(self._table)}"
            )
        reporting = replace(caller, on_progress=_reporter(context))
        try:
            with self._operations.answering():
                return await self._answer(context, params, operation, reporting)
        except Ending as error:  # the shim knows the mark, and asks the next daemon
            raise MCPError(code=ENDING_CODE, message=str(error), data={"goent": "ending"}) from None
        except GoentError as error:
            return _error_result(str(error))
        except MCPError:
            raise
        except Exception as bug:
            log.exception("%s met a fault of go-ent's own", params.name)
            return _error_result(f"a fault of go-ent's own: {bug!r}; see the daemon's log")

    async def _answer(
        self,
        context: McpContext,
        params: types.CallToolRequestParams,
        operation: Operation,
        caller: Caller,
    ) -> ToolCallAnswer:
        arguments = params.arguments or {}
        if params.request_state is not None and operation.name in WAIT_FIELDS:
            return await self._resume(params.request_state, params, caller)
        limit = wait_seconds(operation, arguments)
        tasks = _tasks(context) if offers_tasks(context) else None
        if limit <= 0 or not (tasks or supports_forms(context)):
            reply = await operation.call(arguments, caller)
            return _tool_result(reply, whole=_wants_whole(operation, arguments))
        if tasks and not tasks.full():
            return await self._as_task(tasks, context, operation, arguments, caller)
        wait = await self._waiting.start(operation, arguments, limit, caller)
        if is_modern(context):
            return await self._answer_until_question(wait, operation.name, caller)
        return await self._ask_by_request(wait, context, caller)

    async def _ask_by_request(
        self, wait: CallWait, context: McpContext, caller: Caller
    ) -> types.CallToolResult:
        """Time in which somebody looks at a form does not count, but no call takes for ever."""

        async def ask(status: Status, question: Question) -> FormOutcome:
            shown = question_form(status, question)
            elicited = context.session.elicit_form(
                shown.message, shown.requested_schema, context.request_id
            )
            return await self._answer_unless_settled(status, question, elicited)

        with anyio.move_on_after(MAX_WAIT_S):
            return _tool_result(await self._waiting.wait_to_end(wait, caller, ask))
        return _tool_result(await self._waiting.refresh(wait))

    async def _answer_until_question(
        self, wait: CallWait, tool: str, caller: Caller
    ) -> ToolCallAnswer:
        """Until the end or the next question; the client comes back with the answer."""
        wait = await self._waiting.wait_for_question(wait, caller)
        asked = self._waiting.open_question(wait)
        if asked is None or wait.forms >= MAX_FORMS:
            return _tool_result(wait.reply)
        status, question = asked
        which = question_ref(status, question)
        return types.InputRequiredResult(
            input_requests={which.key: types.ElicitRequest(params=question_form(status, question))},
            request_state=encode_wait(wait, tool, which),
        )

    async def _resume(
        self, state: str, params: types.CallToolRequestParams, caller: Caller
    ) -> ToolCallAnswer:
        wait, asked = await self._waiting.resume(state, params.name)
        outcome = form_answer((params.input_responses or {}).get(asked.key))
        if outcome is None:
            return _tool_result(await self._waiting.refresh(wait))
        await self._waiting.answer_worker(outcome, asked, caller)
        return await self._answer_until_question(
            await self._waiting.wait_more(wait, caller), params.name, caller
        )

    async def _as_task(
        self,
        tasks: CallTasks,
        context: McpContext,
        operation: Operation,
        arguments: Mapping[str, object],
        caller: Caller,
    ) -> ToolCallAnswer:
        limit = wait_seconds(operation, arguments)
        if operation.name in ("worker_wait", "swarm_wait") and "timeout_s" not in arguments:
            limit = MAX_TASK_S
        wait = await self._waiting.start(operation, arguments, limit, caller)
        if self._waiting.is_over(wait):
            return _tool_result(await self._waiting.refresh(wait))
        asks = supports_forms(context)

        async def work(task: CallTask) -> types.CallToolResult:
            async def note(status: Status, words: str) -> None:
                task.set_message(_progress_text(status, words))

            async def ask(status: Status, question: Question) -> FormOutcome:
                if not asks:
                    return None
                request = types.ElicitRequest(params=question_form(status, question))
                response = task.ask(
                    question_ref(status, question).key, request, _progress_text(status)
                )
                return await self._answer_unless_settled(status, question, response)

            try:
                noting = replace(caller, on_progress=note)
                return _tool_result(await self._waiting.wait_to_end(wait, noting, ask))
            except GoentError as error:
                return _error_result(str(error))

        return tasks.start(f"waiting for {', '.join(wait.worker_ids)}", work)

    async def _answer_unless_settled(
        self, status: Status, question: Question, response: Awaitable[object]
    ) -> FormOutcome:
        """The first answer wins: when the question has its answer elsewhere, the form goes."""
        outcome: FormOutcome = "elsewhere"

        async def watch() -> None:
            await self._enquiries.wait_for_answer(status.worker_id, question.id)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            try:
                outcome = form_answer(await response)
            except (MCPError, ValueError) as error:  # refused, or not an answer to a form
                log.info("the client could not be asked: %s", error)
                outcome = None
            group.cancel_scope.cancel()
        return outcome


def _tasks(context: McpContext) -> CallTasks | None:
    tasks = context.lifespan_context
    return tasks if isinstance(tasks, CallTasks) else None


def _reporter(context: McpContext) -> OnProgress:
    """Progress must grow, so it counts the reports; what there is to see is in the message."""
    reports = 0

    async def report(status: Status, words: str) -> None:
        nonlocal reports
        reports += 1
        await context.session.report_progress(float(reports), message=_progress_text(status, words))

    return report


def _progress_text(status: Status, words: str = "") -> str:
    percent = status.progress.percent
    share = "" if percent is None else f" {percent}%"
    step = "" if status.step == status.state else f": {status.step}"
    said = words and f"; it says: {words}"
    return f"{status.worker_id} {outcome_words(status.state, status.evidence)}{share}{step}{said}"


def _tool_result(reply: Value, *, whole: bool = False) -> types.CallToolResult:
    reply = reply if whole else _short_reply(reply)
    return types.CallToolResult(
        content=[types.TextContent(text=msgspec.json.encode(reply).decode())],
        structured_content=msgspec.to_builtins(reply),
    )


def _wants_whole(operation: Operation, arguments: Mapping[str, object]) -> bool:
    if operation.request is not StatusRequest:
        return False
    return msgspec.convert(arguments, StatusRequest, strict=False).whole


def _short_reply(reply: Value) -> Value:
    """Short enough for a model's context: what is left out of questions is counted in them."""
    match reply:
        case Status(permission=Question() as question):
            return structs.replace(
                reply, permission=shorten_question(question, MAX_REPLY_DETAIL_CHARS)
            )
        case WaitReply(workers=workers):
            asking = sum(worker.permission is not None for worker in workers)
            room = MAX_REPLY_DETAIL_CHARS // max(1, asking)
            return structs.replace(
                reply, workers=tuple(_with_short_question(each, room) for each in workers)
            )
        case _:
            return reply


def _with_short_question(worker: Status, room: int) -> Status:
    asked = worker.permission
    return structs.replace(worker, permission=shorten_question(asked, room)) if asked else worker


def _error_result(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)
