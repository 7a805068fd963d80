"""Serves one MCP connection: operations as tools, outputs and results as resources, and a prompt.

The SDK does not answer a line that it cannot parse; here it is answered as JSON-RPC requires, and
the connection stays up.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, ByteStream
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.message import SessionMessage

from goent import __version__
from goent.mcp.call_tasks import CallTasks, call_tasks_lifespan, serve_tasks
from goent.mcp.elicitation import McpContext
from goent.mcp.resources import McpResources, ResourceChanges, first_page, invalid_params
from goent.mcp.tool_calls import ToolCallAnswer, ToolCalls
from goent.operations.operation_table import Caller, Operation, Operations
from goent.rpc.byte_streams import PrefixedStream
from goent.rpc.json_rpc import INVALID_REQUEST, PARSE_ERROR
from goent.system.line_splitter import LineSplitter, OversizedLine
from goent.workers.worker_queries import WorkerQueries

READ_BYTES = 256 * 1024

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def mcp_streams(
    receive: ByteReceiveStream, send: ByteSendStream
) -> AsyncGenerator[tuple[Incoming, Outgoing]]:
    """The pair of streams that `Server.run` takes."""
    to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    writing = anyio.Lock()

    async def read() -> None:
        async with to_server:
            async for line in _lines(receive):
                if isinstance(line, OversizedLine):
                    await write(_error_line(INVALID_REQUEST, line.message, line.request_id))
                    continue
                try:
                    message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    await write(_parse_error(line))
                    continue
                await to_server.send(SessionMessage(message))

    async def write(line: bytes) -> None:
        async with writing:
            await send.send(line + b"\n")

    async def relay() -> None:
        async with from_server:
            async for message in from_server:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                await write(text.encode())

    async with anyio.create_task_group() as group:
        group.start_soon(_until_closed, read)
        group.start_soon(_until_closed, relay)
        yield incoming, outgoing


async def _until_closed(copy: Callable[[], Awaitable[None]]) -> None:
    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
        await copy()


async def _lines(receive: ByteReceiveStream) -> AsyncIterator[bytes | OversizedLine]:
    splitter = LineSplitter()
    with suppress(anyio.EndOfStream):
        while True:
            for line in splitter.feed(await receive.receive(READ_BYTES)):
                if isinstance(line, OversizedLine) or line.strip():
                    yield line
    line = splitter.finish()
    if isinstance(line, OversizedLine) or line.strip():
        yield line


class _MessageId(msgspec.Struct):
    id: str | int | float | None = None


def _parse_error(line: bytes) -> bytes:
    """The error reply to an invalid line, with its id if it has one."""
    try:
        line.decode()
        msgspec.json.decode(line)
    except RecursionError:
        return _error_line(PARSE_ERROR, "parse error: nested too deeply")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _error_line(PARSE_ERROR, f"parse error: {error}")
    try:
        number = msgspec.json.decode(line, type=_MessageId).id
    except msgspec.ValidationError as error:
        return _error_line(INVALID_REQUEST, f"invalid request: {error}")
    return _error_line(
        INVALID_REQUEST, "invalid request: not a JSON-RPC 2.0 message", msgspec.json.encode(number)
    )


def _error_line(code: int, message: str, number: bytes = b"null") -> bytes:
    error = {"code": code, "message": message}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": msgspec.Raw(number), "error": error})


DELEGATE_PROMPT = types.Prompt(
    name="delegate",
    title="Delegate a task",
    description="Hand a task to a go-ent worker, and check the result.",
    arguments=[
        types.PromptArgument(name="task", description="What to do.", required=True),
        types.PromptArgument(
            name="provider", description="Which provider; default: go-ent's.", required=False
        ),
    ],
)
DELEGATE_TEXT = """\
Hand this task to a go-ent worker, and report the result to me:

{task}

1. Write the task out whole: the worker sees neither this conversation nor your earlier findings. \
State the goal, the place (paths), what must not change, and how to tell that it is done.
2. Find the commands that prove it (tests, a build, a linter) and pass them as verify. Without \
them the result is only claimed.
3. worker_spawn with {pin}task, files that matter, and verify. If the task falls into parts that do not touch \
the same files, spawn one worker for each before you wait.
4. worker_wait. When a worker is waiting for a permission, look at the command or the edit, \
and answer with worker_answer; if it is not plainly part of the task, ask me first. Then wait again.
5. worker_result. Look at evidence, files and verify; read the changes yourself where nothing \
was verified. If something is missing, worker_prompt the same worker: it remembers its work.
6. Tell me what was done, what proves it, what is open, and what it cost."""


async def list_prompts(
    _: McpContext, params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    first_page(params)
    return types.ListPromptsResult(prompts=[DELEGATE_PROMPT])


async def get_prompt(_: McpContext, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    if params.name != DELEGATE_PROMPT.name:
        raise invalid_params(f"unknown prompt {params.name!r}; there is: {DELEGATE_PROMPT.name}")
    given = params.arguments or {}
    task, provider = given.get("task", "").strip(), given.get("provider", "").strip()
    if not task:
        raise invalid_params("delegate needs an argument 'task': what is to be done")
    text = DELEGATE_TEXT.format(task=task, pin=f"provider {provider!r}, " if provider else "")
    return types.GetPromptResult(
        description=DELEGATE_PROMPT.description,
        messages=[types.PromptMessage(role="user", content=types.TextContent(text=text))],
    )


INSTRUCTIONS = """\
go-ent runs coding workers on other models (GLM, Kimi, DeepSeek, …) beside you. Hand over work \
that is well described and can be checked; keep what needs this conversation.
worker_spawn returns immediately with a worker_id. Describe the whole task: a worker sees only \
what you write and the files in its directory. Spawn several before you wait. Then worker_wait (it returns \
when they end, or when one asks for a permission: answer with worker_answer), then worker_result.
Several tasks that can run in parallel are a swarm: swarm_spawn gives each worker a worktree of its \
own, and a task starts from the merged work of those it comes after. Cut the tasks so that no two \
edit the same lines, and give verify commands. Then swarm_wait, swarm_result (conflicts, and \
the order that merges the most), swarm_retry for what failed, and swarm_merge.
Evidence is "claimed" unless verify commands ran: pass verify, or check yourself. "refuted" means that \
the work is not done, also where the state is "completed". \
Workers live on when this session ends; worker_list finds them again."""

DESCRIPTIONS = {
    "worker_spawn": "Hand a task to a new worker and return its id immediately. provider, model and "
    "method are pins: obeyed, or refused with the reason; without them go-ent chooses. "
    "provider_list shows the choices.",
    "worker_prompt": "Give an open worker a further prompt; it remembers its earlier turns. "
    "Refused while a turn runs unless queue is true.",
    "worker_status": "A worker's state, evidence, current step, progress, open permission question, tokens "
    "and cost so far.",
    "worker_output": "A worker's text and actions. since_last returns only what is new to you; "
    "cursor continues an earlier reply.",
    "worker_wait": "Wait until all workers (or any) have ended their turn, at most timeout_s. "
    "Returns early when one needs a permission: answer it, then wait again.",
    "worker_result": "The result of a worker's task: its last message, changed files, commands, "
    "verification, tokens, cost and failure.",
    "worker_answer": "Answer a worker's open permission question. reject usually ends its turn; the "
    "worker stays open. reject with a message says what to do instead, and the turn goes on. "
    "allow_always writes the rule that the question names as always.",
    "worker_cancel": "Stop a worker's turn and return what it did. Edits stay. The worker "
    "stays open for another prompt unless close is true.",
    "worker_list": "All workers of this project, newest first, with their status.",
    "provider_list": "The providers and models that workers can run on, with price, context "
    "window, health (and until when one is unavailable), and current use.",
    "provider_recommend": "Which provider suits a task and why, its probable cost and time, the "
    "alternatives, and whether to delegate or split it at all. Nothing is started.",
    "swarm_spawn": "Hand over several tasks together and return immediately. Each gets a worker in a git "
    "worktree of its own; `after` names tasks whose merged work it starts from. verify commands run "
    "in each worker's folder and on the merge. The checkout is not touched. All share one "
    "budget.",
    "swarm_status": "The state of a swarm: each task's state, evidence, provider, step, tokens, cost and time.",
    "swarm_wait": "Wait until every task of a swarm is over, at most timeout_s. Returns early when a "
    "worker needs a permission: answer with worker_answer, then wait again.",
    "swarm_result": "The result of a swarm, short: per task state, evidence, lines changed and cost; "
    "totals by provider; failures; conflicts with their hunks; the order that merges the most. "
    "whole: all of it, however long. Details of one worker: worker_result.",
    "swarm_retry": "Give the failed tasks of a swarm (or those named) to new workers; elsewhere: on "
    "another provider than before. Tasks that were blocked by them follow.",
    "swarm_cancel": "Stop a swarm, or some of its tasks, and start nothing more. Finished work stays "
    "and can be merged.",
    "swarm_merge": "Join the finished work on an integration branch, run the verify commands on it, "
    "and report what was left out and how to resolve it. The checkout stays as it is unless apply is "
    "true. dry_run only shows what would be merged.",
    "agent_spawn_acp": "Hand a task to a new worker on go-ent's own agent: quick to start, its tools "
    "and its model of your choice. Returns its id immediately; then use it as any worker "
    "(worker_wait, worker_answer, worker_result).",
    "agent_prompt_acp": "Give a worker on an agent a further prompt; it remembers its earlier "
    "turns.",
    "agent_cancel_acp": "Stop the turn of a worker on an agent and return what it did. It "
    "stays open for another prompt.",
    "eval_run": "Test providers, models or prompts with a suite of cases: run it in the background and "
    "return its run_id immediately. Targets are in .goent/targets.yaml. Then eval_status; what it costs is real "
    "money unless the targets are mock, replay or cli.",
    "eval_status": "The state of an evaluation: trials done, passed, failed, errors, cost, the latest "
    "failures. wait_s waits for its end; cancel ends it.",
    "eval_compare": "Is one evaluation better than another, beyond what chance explains? Case by case.",
    "cost_report": "Tokens and money spent, by provider, model, worker or day.",
}
READ_ONLY = {
    "worker_status",
    "worker_output",
    "worker_wait",
    "worker_result",
    "worker_list",
    "provider_list",
    "provider_recommend",
    "swarm_status",
    "swarm_wait",
    "swarm_result",
    "eval_compare",
    "cost_report",
}
DESTRUCTIVE = {"worker_cancel", "swarm_cancel", "agent_cancel_acp", "eval_status"}
OPEN_WORLD = {
    "worker_spawn",
    "worker_prompt",
    "swarm_spawn",
    "swarm_retry",
    "agent_spawn_acp",
    "agent_prompt_acp",
    "eval_run",
}


def tool_definition(operation: Operation) -> types.Tool:
    name = operation.name
    return types.Tool(
        name=name,
        description=DESCRIPTIONS[name],
        input_schema=json_schema(operation.request),
        output_schema=json_schema(operation.reply),
        annotations=types.ToolAnnotations(
            read_only_hint=name in READ_ONLY,
            destructive_hint=name in DESTRUCTIVE,
            open_world_hint=name in OPEN_WORLD,
        ),
    )


def json_schema(kind: type) -> dict[str, Any]:
    """A JSON schema whose root is the object itself, with one meaning in draft-07 and 2020-12.

    Many clients validate by draft-07, whatever the server declares: the TypeScript SDK v1 does.
    """
    (_,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = {**components.pop(kind.__name__)}
    for key in ("title", "description"):
        root.pop(key, None)
    whole = {**root, "$defs": components} if components else root
    return json.loads(msgspec.json.encode(whole), object_hook=_published)


def _published(part: dict[str, Any]) -> dict[str, Any]:
    """A part of a schema without older names, and with an array of a fixed length for `prefixItems`.

    Draft-07 does not know that keyword, and reads the `items: false` beside it as "never any items".
    """
    kinds = part.pop("prefixItems", None)
    if kinds:
        same = all(kind == kinds[0] for kind in kinds)
        part["items"] = kinds[0] if same else {"anyOf": kinds}
    fields: dict[str, dict[str, Any]] = part.get("properties", {})
    for name in [name for name, field in fields.items() if field.get("deprecated")]:
        del fields[name]
    for name, field in fields.items():
        if field.pop("x-required", False):  # what only its older name makes optional
            part.setdefault("required", []).append(name)
            field.pop("default")
    return part


class _LowLevelServer(Server[CallTasks]):
    """Advertises changes of resources only: tools and prompts never change."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        found = super().get_capabilities(
            notification_options,
            experimental_capabilities,
            extensions,
            protocol_version=protocol_version,
        )
        return found.model_copy(
            update={"tools": types.ToolsCapability(), "prompts": types.PromptsCapability()}
        )


class McpFrontend:
    """Serves MCP to any number of connections."""

    def __init__(self, operations: Operations, enquiries: WorkerQueries) -> None:
        self._calls = ToolCalls(operations, enquiries)
        self._resources = McpResources(operations, enquiries)
        self._changes = ResourceChanges(enquiries, self._resources)
        self._tools = [tool_definition(operation) for operation in operations.table.values()]

    async def serve(self, stream: ByteStream, already_read: bytes, caller: Caller) -> None:
        await self.serve_streams(PrefixedStream(already_read, stream), stream, caller)

    async def serve_streams(
        self, receive: ByteReceiveStream, send: ByteSendStream, caller: Caller
    ) -> None:
        """Serves until the client closes its side."""
        server = self.server(lambda _: caller)
        async with mcp_streams(receive, send) as (incoming, outgoing):
            options = server.create_initialization_options(
                NotificationOptions(resources_changed=True)
            )
            await server.run(incoming, outgoing, options)

    def server(self, caller: Callable[[McpContext], Caller]) -> Server[CallTasks]:
        """A server for one connection, or for all of one HTTP endpoint."""
        server = _LowLevelServer(
            "go-ent",
            version=__version__,
            instructions=INSTRUCTIONS,
            lifespan=call_tasks_lifespan,
            on_list_tools=self._list_tools,
            on_list_prompts=list_prompts,
            on_get_prompt=get_prompt,
            on_list_resources=self._resources.page,
            on_list_resource_templates=self._resources.templates,
            on_read_resource=self._resources.read,
        )

        async def call(context: McpContext, params: types.CallToolRequestParams) -> ToolCallAnswer:
            return await self._calls.answer(context, params, caller(context))

        server.add_request_handler("tools/call", types.CallToolRequestParams, call)
        serve_tasks(server)
        self._changes.add_to(server)
        return server

    async def _list_tools(
        self, _: McpContext, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        first_page(params)
        return types.ListToolsResult(tools=self._tools)
