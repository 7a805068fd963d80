"""One MCP connection: the operations as tools, the outputs as resources, and a prompt."""

from collections.abc import Callable

import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, ByteStream
from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server
from mcp.shared.exceptions import MCPError

from goent import __version__
from goent.core.enquiries import Enquiries
from goent.core.operation import Caller
from goent.core.operations import Operations
from goent.domain.errors import GoentError
from goent.domain.requests import ListRequest
from goent.domain.swarms import SwarmResultRequest
from goent.domain.verification import outcome_words
from goent.frontends.mcp.asking import Context
from goent.frontends.mcp.calls import Answer, Calls
from goent.frontends.mcp.changes import PREFIX, SUFFIX, Changes, uri_of
from goent.frontends.mcp.prompts import get_prompt, list_prompts
from goent.frontends.mcp.tasks import Tasks, serve_tasks, tasks_of
from goent.frontends.mcp.tools import INSTRUCTIONS, tool
from goent.frontends.mcp.wire import mcp_streams
from goent.rpc.reread import Reread

SWARM_PREFIX = "swarm://"
SWARM_SUFFIX = "/result"


class McpFrontend:
    """Serves any number of connections."""

    def __init__(self, operations: Operations, enquiries: Enquiries) -> None:
        self._operations = operations
        self._enquiries = enquiries
        self._calls = Calls(operations, enquiries)
        self._changes = Changes(enquiries)
        self._tools = [tool(operation) for operation in operations.table.values()]

    async def serve(self, stream: ByteStream, already_read: bytes, caller: Caller) -> None:
        await self.serve_streams(Reread(already_read, stream), stream, caller)

    async def serve_streams(
        self, receive: ByteReceiveStream, send: ByteSendStream, caller: Caller
    ) -> None:
        """Until the client closes its side."""
        server = self.server(lambda _: caller)
        async with mcp_streams(receive, send) as (incoming, outgoing):
            options = server.create_initialization_options(
                NotificationOptions(resources_changed=True)
            )
            await server.run(incoming, outgoing, options)

    def server(self, caller: Callable[[Context], Caller]) -> Server[Tasks]:
        """For one connection, or for all that come in by one door."""
        server = Server(
            "go-ent",
            version=__version__,
            instructions=INSTRUCTIONS,
            lifespan=tasks_of,
            on_list_tools=self._list_tools,
            on_list_prompts=list_prompts,
            on_get_prompt=get_prompt,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )

        async def call(context: Context, params: types.CallToolRequestParams) -> Answer:
            return await self._calls.answer(context, params, caller(context))

        server.add_request_handler("tools/call", types.CallToolRequestParams, call)
        serve_tasks(server)
        self._changes.add_to(server)
        return server

    async def _list_tools(self, _: Context, __: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._tools)

    async def _list_resources(self, _: Context, __: object) -> types.ListResourcesResult:
        listed = self._enquiries.list(ListRequest(limit=50))
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=uri_of(worker.worker_id),
                    name=f"{worker.worker_id} ({outcome_words(worker.state, worker.evidence)})",
                    description=worker.task,
                    mime_type="text/plain",
                )
                for worker in listed.workers
            ]
        )

    async def _list_templates(self, _: Context, __: object) -> types.ListResourceTemplatesResult:
        output = types.ResourceTemplate(
            uri_template=f"{PREFIX}{{id}}{SUFFIX}",
            name="worker output",
            description="Everything a worker said and did, whole.",
            mime_type="text/plain",
        )
        result = types.ResourceTemplate(
            uri_template=f"{SWARM_PREFIX}{{id}}{SWARM_SUFFIX}",
            name="swarm result",
            description="What came of a swarm, with all conflicts and their hunks.",
            mime_type="application/json",
        )
        return types.ListResourceTemplatesResult(resource_templates=[output, result])

    async def _read_resource(
        self, _: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = params.uri
        try:
            if uri.startswith(SWARM_PREFIX) and uri.endswith(SWARM_SUFFIX):
                kind = "application/json"
                text = await self._swarm_result(uri[len(SWARM_PREFIX) : -len(SWARM_SUFFIX)])
            elif uri.startswith(PREFIX) and uri.endswith(SUFFIX):
                kind = "text/plain"
                text = await self._enquiries.whole_output(uri[len(PREFIX) : -len(SUFFIX)])
            else:
                raise _bad_request(
                    f"unknown resource {uri!r}; there are {PREFIX}{{id}}{SUFFIX} and "
                    f"{SWARM_PREFIX}{{id}}{SWARM_SUFFIX}"
                )
        except GoentError as error:
            raise _bad_request(str(error)) from error
        contents = types.TextResourceContents(uri=uri, mime_type=kind, text=text)
        return types.ReadResourceResult(contents=[contents])

    async def _swarm_result(self, swarm: str) -> str:
        request = SwarmResultRequest(swarm_id=swarm, whole=True)
        await self._enquiries.recall(request)
        result = await self._operations.swarms.result(request)
        return msgspec.json.format(msgspec.json.encode(result), indent=1).decode()


def _bad_request(message: str) -> MCPError:
    return MCPError(code=-32602, message=message)
