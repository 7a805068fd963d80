"""A lead agent on the SDK's own client, over a socket pair, with a person who fills in forms."""

import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
import msgspec
from mcp import Client, types
from mcp.client.context import ClientRequestContext
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import MessageHandlerFnT
from scripted_project import Project

from goent.domain.events import PermissionAnswered
from goent.mcp.server import Incoming, McpFrontend, Outgoing, mcp_streams
from goent.operations.operation_table import Caller
from goent.rpc.byte_streams import LocalStream


class Person:
    """Sees the forms and fills them in, in the order given; after that it thinks for ever.

    `reject: do this` is a no with words.
    """

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.forms: list[types.ElicitRequestFormParams] = []
        self.seen = anyio.Event()
        self.withdrawn = anyio.Event()
        self.may_answer = anyio.Event()
        self.may_answer.set()

    async def __call__(
        self, context: ClientRequestContext, params: types.ElicitRequestParams
    ) -> types.ElicitResult:
        assert isinstance(params, types.ElicitRequestFormParams)
        self.forms.append(params)
        self.seen.set()
        try:
            await self.may_answer.wait()
            if not self.answers:
                await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            self.withdrawn.set()
            raise
        answer = self.answers.pop(0)
        if answer in ("decline", "cancel"):
            return types.ElicitResult.model_validate({"action": answer})
        answer, _, words = answer.partition(": ")
        more = {"instead": words} if words else {}
        return types.ElicitResult(action="accept", content={"answer": answer, **more})


@asynccontextmanager
async def _wire(near: LocalStream) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    async with mcp_streams(near, near) as streams:
        yield streams
        await near.aclose()


@asynccontextmanager
async def a_lead(
    project: Project,
    mode: str,
    person: Person | None = None,
    extensions: Sequence[ClientExtension] = (),
    hears: MessageHandlerFnT | None = None,
) -> AsyncGenerator[Client]:
    frontend = McpFrontend(project.operations, project.queries)
    ours, theirs = socket.socketpair()
    async with (
        LocalStream(ours) as near,
        LocalStream(theirs) as far,
        anyio.create_task_group() as group,
    ):
        caller = Caller(name="mcp", cwd=project.folder)
        group.start_soon(frontend.serve, far, b"", caller)
        client = Client(
            _wire(near),
            mode=mode,
            elicitation_callback=person,
            extensions=extensions or None,
            message_handler=hears,
        )
        async with client as lead:
            yield lead
        group.cancel_scope.cancel()


async def answers(project: Project, worker: str) -> list[tuple[str, str, str]]:
    """The questions' ids, the answers, and who gave them."""
    events = await project.events(worker)
    return [(e.id, e.option, e.by) for e in events if isinstance(e, PermissionAnswered)]


class Handle(types.Result):
    """What comes instead of a result when a call became a task."""

    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    status_message: str
    ttl_ms: int
    poll_interval_ms: int


class TaskState(Handle):
    result_type: Literal["complete"] = "complete"  # pyright: ignore[reportIncompatibleVariableOverride] (the same fields under another tag)
    result: dict[str, Any] | None = None
    input_requests: types.InputRequests | None = None


class _Params(types.RequestParams):
    task_id: str
    input_responses: dict[str, Any] | None = None


class _TaskRequest(types.Request[_Params, str]):
    name_param = "taskId"
    method: str
    params: _Params


class TaskClient(ClientExtension):
    """Advertises the extension; the test itself asks after its tasks."""

    identifier = "io.modelcontextprotocol/tasks"

    def claims(self) -> Sequence[ResultClaim[Any]]:
        async def resolve(_: Handle, __: ClaimContext) -> types.CallToolResult:
            raise AssertionError("the tests ask with allow_claimed")

        return [ResultClaim(result_type="task", model=Handle, resolve=resolve)]


async def start_task(lead: Client, tool: str, arguments: dict[str, Any]) -> Handle:
    handle = await lead.session.call_tool(tool, arguments, allow_claimed=True)
    assert isinstance(handle, Handle), handle
    return handle


async def ask_task(
    lead: Client, method: str, task: str, responses: dict[str, Any] | None = None
) -> dict[str, Any]:
    params = _Params(task_id=task, input_responses=responses)
    request = _TaskRequest(method=f"tasks/{method}", params=params)
    answer = await lead.session.send_request(request, types.Result)
    return msgspec.convert(answer.model_dump(by_alias=True, mode="json"), dict[str, Any])


async def task_until(lead: Client, task: str, *states: str) -> TaskState:
    with anyio.fail_after(20):
        while True:
            request = _TaskRequest(method="tasks/get", params=_Params(task_id=task))
            found = await lead.session.send_request(request, TaskState)
            if found.status in states:
                return found
            await anyio.sleep(0.02)
