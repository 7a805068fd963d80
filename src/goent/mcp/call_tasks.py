"""Runs a tool call that waits as a task the client can poll (`io.modelcontextprotocol/tasks`).

A task is only the wait: the worker is unaffected if the task is cancelled, or lost with its
connection. Tasks live in memory, as long as their connection and at most an hour after they end.
"""

import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Literal
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup
from mcp import types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp.types import HEADER_MISMATCH, INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY

from goent.mcp.elicitation import McpContext, is_modern
from goent.workers.views import timestamp

EXTENSION = "io.modelcontextprotocol/tasks"
MAX_TASK_S = 3600.0  # that a task waits without a timeout of its own
KEPT_S = 3600.0  # that its outcome can be fetched
MAX_TASKS = 200
POLL_MS = 1000

TaskState = Literal["working", "input_required", "completed", "failed", "cancelled"]

log = logging.getLogger(__name__)


class TaskParams(types.RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    task_id: str


class TaskUpdateParams(TaskParams):
    """The parameters of `tasks/update`: answers by the keys of their questions."""

    input_responses: dict[str, Any]


class CallTask:
    """One call that waits, or its outcome."""

    def __init__(self, message: str) -> None:
        self.id = uuid4().hex
        self.scope = anyio.CancelScope()
        self.result: types.CallToolResult | None = None
        self.ended_at: float | None = None
        self._state: TaskState = "working"
        self._message = message
        self._created = self._updated = time.time()
        self._forms: dict[str, types.ElicitRequest] = {}
        self._responses: dict[str, object] = {}
        self._answered = anyio.Event()

    def set_message(self, message: str, state: TaskState | None = None) -> None:
        self._message, self._state = message, state or self._state
        self._updated = time.time()

    def end(self, state: TaskState, message: str) -> None:
        self._forms.clear()
        self.ended_at = time.monotonic()
        self.set_message(message, state)

    async def ask(self, key: str, request: types.ElicitRequest, message: str) -> object:
        """Waits for the client's answer. Cancelling withdraws the question."""
        self._forms[key] = request
        self.set_message(message, "input_required")
        try:
            while key not in self._responses:
                self._answered = anyio.Event()
                await self._answered.wait()
            return self._responses.pop(key)
        finally:
            self._forms.pop(key, None)
            self.set_message("resumed", "working")

    def take(self, responses: Mapping[str, Any]) -> None:
        """Takes the answers to open questions, and ignores all others."""
        answers = {
            key: _elicit_result(key, responses[key]) for key in self._forms if key in responses
        }
        self._responses.update(answers)
        self._answered.set()

    def to_wire(self, result_type: str) -> dict[str, Any]:
        wire: dict[str, Any] = {
            "resultType": result_type,
            "taskId": self.id,
            "status": self._state,
            "statusMessage": self._message,
            "createdAt": timestamp(self._created),
            "lastUpdatedAt": timestamp(self._updated),
            "ttlMs": int((MAX_TASK_S + KEPT_S) * 1000),
            "pollIntervalMs": POLL_MS,
        }
        if self._state == "input_required":
            wire["inputRequests"] = {key: _dumped(form) for key, form in self._forms.items()}
        if self._state == "completed" and self.result:
            wire["result"] = _dumped(self.result)
        if self._state == "failed":
            wire["error"] = {"code": types.INTERNAL_ERROR, "message": self._message}
        return wire


class CallTasks:
    """The tasks of one connection."""

    def __init__(self, group: TaskGroup) -> None:
        self.group = group  # ends with the connection
        self._tasks: dict[str, CallTask] = {}

    def start(
        self, message: str, work: Callable[[CallTask], Awaitable[types.CallToolResult]]
    ) -> dict[str, Any]:
        self._forget()
        task = CallTask(message)
        self._tasks[task.id] = task
        self.group.start_soon(self._run, task, work, name=f"task {task.id}")
        return task.to_wire("task")

    def full(self) -> bool:
        self._forget()
        return len(self._tasks) >= MAX_TASKS

    async def _run(
        self, task: CallTask, work: Callable[[CallTask], Awaitable[types.CallToolResult]]
    ) -> None:
        with task.scope:
            try:
                task.result = await work(task)
            except Exception as bug:
                log.exception("internal error in a task")
                task.end("failed", f"internal error: {bug!r}; see the daemon's log")
            else:
                task.end("completed", "done")
        if task.ended_at is None:
            task.end("cancelled", "the wait was cancelled; the worker continues")

    def _forget(self) -> None:
        now = time.monotonic()
        ended = {i: t.ended_at for i, t in self._tasks.items() if t.ended_at is not None}
        for name, at in sorted(ended.items(), key=lambda item: item[1]):
            if now - at > KEPT_S or len(self._tasks) >= MAX_TASKS:
                del self._tasks[name]

    def find(self, context: McpContext, name: str) -> CallTask:
        _check_header(context, name)
        if not offers_tasks(context):
            raise MCPError(
                code=MISSING_REQUIRED_CLIENT_CAPABILITY,
                message=f"the request does not declare the extension {EXTENSION}",
                data={"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
            )
        if name not in self._tasks:
            raise MCPError(
                code=INVALID_PARAMS,
                message=f"no task {name!r}: it belongs to another connection or has expired; "
                "worker_list shows every worker's state",
            )
        return self._tasks[name]


@asynccontextmanager
async def call_tasks_lifespan(_: Server[CallTasks]) -> AsyncGenerator[CallTasks]:
    """The lifespan of a server: its tasks end with the connection."""
    async with anyio.create_task_group() as group:
        yield CallTasks(group)
        group.cancel_scope.cancel()


def offers_tasks(context: McpContext) -> bool:
    """Every request declares it anew; the older era has no tasks."""
    capabilities = context.session.client_capabilities
    extensions = (capabilities.extensions if capabilities else None) or {}
    return is_modern(context) and EXTENSION in extensions


def serve_tasks(server: Server[CallTasks]) -> None:
    """Add the extension's methods."""

    async def get(context: McpContext, params: TaskParams) -> dict[str, Any]:
        return _tasks(context).find(context, params.task_id).to_wire("complete")

    async def update(context: McpContext, params: TaskUpdateParams) -> dict[str, Any]:
        _tasks(context).find(context, params.task_id).take(params.input_responses)
        return {}

    async def cancel(context: McpContext, params: TaskParams) -> dict[str, Any]:
        _tasks(context).find(context, params.task_id).scope.cancel()
        return {}

    server.extensions[EXTENSION] = {}
    server.add_request_handler("tasks/get", TaskParams, get)
    server.add_request_handler("tasks/update", TaskUpdateParams, update)
    server.add_request_handler("tasks/cancel", TaskParams, cancel)


def _tasks(context: McpContext) -> CallTasks:
    tasks = context.lifespan_context
    assert isinstance(tasks, CallTasks), "the server's lifespan"
    return tasks


def _check_header(context: McpContext, name: str) -> None:
    """Over HTTP a header may name the task, too, for routing; it must not contradict the request."""
    header = context.request.headers.get(MCP_NAME_HEADER) if context.request else None
    if header is not None and decode_header_value(header) != name:
        raise MCPError(
            code=HEADER_MISMATCH,
            message=f"header Mcp-Name {header!r} does not match the request's taskId {name!r}",
        )


def _elicit_result(key: str, response: object) -> types.ElicitResult:
    try:
        return types.ElicitResult.model_validate(response)
    except ValueError:
        raise MCPError(
            code=INVALID_PARAMS,
            message=f"inputResponses {key!r} is not an answer to a form: it needs an action (accept, "
            "decline or cancel), and content with accept",
        ) from None


def _dumped(model: types.ElicitRequest | types.CallToolResult) -> dict[str, Any]:
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)
