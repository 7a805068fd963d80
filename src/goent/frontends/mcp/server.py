"""One MCP connection: the operations as tools, outputs and results as resources, and a prompt."""

from collections.abc import Callable
from typing import Any

from anyio.abc import ByteReceiveStream, ByteSendStream, ByteStream
from mcp import types
from mcp.server.lowlevel import NotificationOptions, Server

from goent import __version__
from goent.core.enquiries import Enquiries
from goent.core.operation import Caller
from goent.core.operations import Operations
from goent.frontends.mcp.asking import Context
from goent.frontends.mcp.calls import Answer, Calls
from goent.frontends.mcp.changes import Changes
from goent.frontends.mcp.prompts import get_prompt, list_prompts
from goent.frontends.mcp.resources import Resources, first_page
from goent.frontends.mcp.tasks import Tasks, serve_tasks, tasks_of
from goent.frontends.mcp.tools import INSTRUCTIONS, tool
from goent.frontends.mcp.wire import mcp_streams
from goent.rpc.reread import Reread


class _Server(Server[Tasks]):
    """Advertises only the changes that are told: tools and prompts stay the same."""

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
    """Serves any number of connections."""

    def __init__(self, operations: Operations, enquiries: Enquiries) -> None:
        self._calls = Calls(operations, enquiries)
        self._resources = Resources(operations, enquiries)
        self._changes = Changes(enquiries, self._resources)
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
        server = _Server(
            "go-ent",
            version=__version__,
            instructions=INSTRUCTIONS,
            lifespan=tasks_of,
            on_list_tools=self._list_tools,
            on_list_prompts=list_prompts,
            on_get_prompt=get_prompt,
            on_list_resources=self._resources.page,
            on_list_resource_templates=self._resources.templates,
            on_read_resource=self._resources.read,
        )

        async def call(context: Context, params: types.CallToolRequestParams) -> Answer:
            return await self._calls.answer(context, params, caller(context))

        server.add_request_handler("tools/call", types.CallToolRequestParams, call)
        serve_tasks(server)
        self._changes.add_to(server)
        return server

    async def _list_tools(
        self, _: Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        first_page(params)
        return types.ListToolsResult(tools=self._tools)
