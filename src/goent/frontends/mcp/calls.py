"""How is a tool call answered? At once, after a wait, by a task, or by a question of its own.

A call that waits is made in one of four ways, by what its client can do: tasks, where the client
offers them; forms by a request to the client (handshake era) or by the answer to its call (the
era after); and without either, the plain operation, which returns when a worker asks something.
"""

import logging
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any

import anyio
import msgspec
from mcp import types
from mcp.shared.exceptions import MCPError
from msgspec import structs

from goent.core.enquiries import Enquiries
from goent.core.operation import Caller, Operation
from goent.core.operations import Operations
from goent.core.progress_reports import OnProgress
from goent.domain.errors import Ending, GoentError
from goent.domain.replies import Question, Status, Waited
from goent.domain.requests import MAX_WAIT_S, StatusRequest
from goent.domain.types import Value
from goent.domain.verification import outcome_words
from goent.frontends.mcp.asking import (
    MOST_IN_REPLY,
    Context,
    Outcome,
    asking,
    can_be_asked,
    choice,
    for_model,
    form,
    is_modern,
)
from goent.frontends.mcp.tasks import LONGEST_S, Task, Tasks, offers_tasks
from goent.frontends.mcp.waiting import LIMITS, MOST_FORMS, Wait, Waiting, seconds, stored

ENDING = -32000

Answer = types.CallToolResult | types.InputRequiredResult | dict[str, Any]

log = logging.getLogger(__name__)


class Calls:
    """Answers the tool calls of any number of connections."""

    def __init__(self, operations: Operations, enquiries: Enquiries) -> None:
        self._operations = operations
        self._table = operations.table
        self._enquiries = enquiries
        self._waiting = Waiting(operations, enquiries)

    async def answer(
        self, context: Context, params: types.CallToolRequestParams, caller: Caller
    ) -> Answer:
        operation = self._table.get(params.name)
        if operation is None:
            return _error(f"unknown tool {params.name!r}; there are: {', '.join(self._table)}")
        reporting = replace(caller, on_progress=_reporter(context))
        try:
            with self._operations.answering():
                return await self._answer(context, params, operation, reporting)
        except Ending as error:  # the shim knows the mark, and asks the next daemon
            raise MCPError(code=ENDING, message=str(error), data={"goent": "ending"}) from None
        except GoentError as error:
            return _error(str(error))
        except MCPError:
            raise
        except Exception as bug:
            log.exception("%s met a fault of go-ent's own", params.name)
            return _error(f"a fault of go-ent's own: {bug!r}; see the daemon's log")

    async def _answer(
        self,
        context: Context,
        params: types.CallToolRequestParams,
        operation: Operation,
        caller: Caller,
    ) -> Answer:
        arguments = params.arguments or {}
        if params.request_state is not None and operation.name in LIMITS:
            return await self._taken_up(params.request_state, params, caller)
        limit = seconds(operation, arguments)
        tasks = _tasks(context) if offers_tasks(context) else None
        if limit <= 0 or not (tasks or can_be_asked(context)):
            reply = await operation.call(arguments, caller)
            return _told(reply, whole=_wants_all(operation, arguments))
        if tasks and not tasks.full():
            return await self._as_task(tasks, context, operation, arguments, caller)
        wait = await self._waiting.begun(operation, arguments, limit, caller)
        if is_modern(context):
            return await self._leg(wait, operation.name, caller)
        return await self._asking_by_request(wait, context, caller)

    async def _asking_by_request(
        self, wait: Wait, context: Context, caller: Caller
    ) -> types.CallToolResult:
        """Time in which somebody looks at a form does not count, but no call takes for ever."""

        async def ask(status: Status, question: Question) -> Outcome:
            shown = form(status, question)
            elicited = context.session.elicit_form(
                shown.message, shown.requested_schema, context.request_id
            )
            return await self._unless_settled(status, question, elicited)

        with anyio.move_on_after(MAX_WAIT_S):
            return _told(await self._waiting.see_through(wait, caller, ask))
        return _told(await self._waiting.renewed(wait))

    async def _leg(self, wait: Wait, tool: str, caller: Caller) -> Answer:
        """Until the end or the next question; the client comes back with the answer."""
        wait = await self._waiting.until_asked(wait, caller)
        asked = self._waiting.open_question(wait)
        if asked is None or wait.forms >= MOST_FORMS:
            return _told(wait.reply)
        status, question = asked
        which = asking(status, question)
        return types.InputRequiredResult(
            input_requests={which.key: types.ElicitRequest(params=form(status, question))},
            request_state=stored(wait, tool, which),
        )

    async def _taken_up(
        self, state: str, params: types.CallToolRequestParams, caller: Caller
    ) -> Answer:
        wait, asked = await self._waiting.taken_up(state, params.name)
        outcome = choice((params.input_responses or {}).get(asked.key))
        if outcome is None:
            return _told(await self._waiting.renewed(wait))
        await self._waiting.pass_on(outcome, asked, caller)
        return await self._leg(await self._waiting.go_on(wait, caller), params.name, caller)

    async def _as_task(
        self,
        tasks: Tasks,
        context: Context,
        operation: Operation,
        arguments: Mapping[str, object],
        caller: Caller,
    ) -> Answer:
        limit = seconds(operation, arguments)
        if operation.name in ("worker_wait", "swarm_wait") and "timeout_s" not in arguments:
            limit = LONGEST_S
        wait = await self._waiting.begun(operation, arguments, limit, caller)
        if self._waiting.is_over(wait):
            return _told(await self._waiting.renewed(wait))
        asks = can_be_asked(context)

        async def work(task: Task) -> types.CallToolResult:
            async def note(status: Status, words: str) -> None:
                task.note(_progress(status, words))

            async def ask(status: Status, question: Question) -> Outcome:
                if not asks:
                    return None
                request = types.ElicitRequest(params=form(status, question))
                response = task.ask(asking(status, question).key, request, _progress(status))
                return await self._unless_settled(status, question, response)

            try:
                noting = replace(caller, on_progress=note)
                return _told(await self._waiting.see_through(wait, noting, ask))
            except GoentError as error:
                return _error(str(error))

        return tasks.start(f"waiting for {', '.join(wait.worker_ids)}", work)

    async def _unless_settled(
        self, status: Status, question: Question, response: Awaitable[object]
    ) -> Outcome:
        """The first answer wins: when the question has its answer elsewhere, the form goes."""
        outcome: Outcome = "elsewhere"

        async def watch() -> None:
            await self._enquiries.settled(status.worker_id, question.id)
            group.cancel_scope.cancel()

        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            try:
                outcome = choice(await response)
            except (MCPError, ValueError) as error:  # refused, or not an answer to a form
                log.info("the client could not be asked: %s", error)
                outcome = None
            group.cancel_scope.cancel()
        return outcome


def _tasks(context: Context) -> Tasks | None:
    tasks = context.lifespan_context
    return tasks if isinstance(tasks, Tasks) else None


def _reporter(context: Context) -> OnProgress:
    """Progress must grow, so it counts the reports; what there is to see is in the message."""
    reports = 0

    async def report(status: Status, words: str) -> None:
        nonlocal reports
        reports += 1
        await context.session.report_progress(float(reports), message=_progress(status, words))

    return report


def _progress(status: Status, words: str = "") -> str:
    percent = status.progress.percent
    share = "" if percent is None else f" {percent}%"
    step = "" if status.step == status.state else f": {status.step}"
    said = words and f"; it says: {words}"
    return f"{status.worker_id} {outcome_words(status.state, status.evidence)}{share}{step}{said}"


def _told(reply: Value, *, whole: bool = False) -> types.CallToolResult:
    reply = reply if whole else _for_model(reply)
    return types.CallToolResult(
        content=[types.TextContent(text=msgspec.json.encode(reply).decode())],
        structured_content=msgspec.to_builtins(reply),
    )


def _wants_all(operation: Operation, arguments: Mapping[str, object]) -> bool:
    if operation.request is not StatusRequest:
        return False
    return msgspec.convert(arguments, StatusRequest, strict=False).whole


def _for_model(reply: Value) -> Value:
    """Short enough for a model's context: what is left out of questions is counted in them."""
    match reply:
        case Status(permission=Question() as question):
            return structs.replace(reply, permission=for_model(question, MOST_IN_REPLY))
        case Waited(workers=workers):
            asking = sum(worker.permission is not None for worker in workers)
            room = MOST_IN_REPLY // max(1, asking)
            return structs.replace(reply, workers=tuple(_asking(each, room) for each in workers))
        case _:
            return reply


def _asking(worker: Status, room: int) -> Status:
    asked = worker.permission
    return structs.replace(worker, permission=for_model(asked, room)) if asked else worker


def _error(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)
