"""One MCP connection: the operations as tools, the outputs as resources."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream, ByteStream
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError

from goent import __version__
from goent.core.enquiries import Enquiries
from goent.core.operations import Caller, Operations
from goent.domain.errors import GoentError
from goent.domain.replies import Status
from goent.domain.requests import ListRequest
from goent.frontends.mcp.tools import INSTRUCTIONS, tool
from goent.frontends.mcp.wire import mcp_streams
from goent.rpc.reread import Reread

Context = ServerRequestContext[Any, Any]

PREFIX, SUFFIX = "worker://", "/output"

log = logging.getLogger(__name__)


class McpFrontend:
    """Serves any number of connections."""

    def __init__(self, operations: Operations, enquiries: Enquiries) -> None:
        self._operations = operations
        self._enquiries = enquiries
        self._tools = [tool(operation) for operation in operations.table.values()]

    async def serve(self, stream: ByteStream, already_read: bytes, caller: Caller) -> None:
        await self.serve_streams(Reread(already_read, stream), stream, caller)

    async def serve_streams(
        self, receive: ByteReceiveStream, send: ByteSendStream, caller: Caller
    ) -> None:
        """Until the client closes its side."""
        server = self._server(caller)
        async with mcp_streams(receive, send) as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    def _server(self, caller: Caller) -> Server[Any]:
        async def call_tool(
            context: Context, params: types.CallToolRequestParams
        ) -> types.CallToolResult:
            return await self._call(context, params, caller)

        return Server(
            "go-ent",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._list_tools,
            on_call_tool=call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
        )

    async def _list_tools(self, _: Context, __: object) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self._tools)

    async def _call(
        self, context: Context, params: types.CallToolRequestParams, caller: Caller
    ) -> types.CallToolResult:
        operation = self._operations.table.get(params.name)
        if operation is None:
            names = ", ".join(self._operations.table)
            return _error(f"unknown tool {params.name!r}; there are: {names}")
        asking = Caller(
            name=caller.name,
            cwd=caller.cwd,
            cursors=caller.cursors,
            on_progress=_reporter(context),
        )
        try:
            reply = await operation.call(params.arguments or {}, asking)
        except GoentError as error:
            return _error(str(error))
        except Exception as bug:
            log.exception("%s met a fault of go-ent's own", params.name)
            return _error(f"a fault of go-ent's own: {bug!r}; see the daemon's log")
        return types.CallToolResult(
            content=[types.TextContent(text=msgspec.json.encode(reply).decode())],
            structured_content=msgspec.to_builtins(reply),
        )

    async def _list_resources(self, _: Context, __: object) -> types.ListResourcesResult:
        listed = self._enquiries.list(ListRequest(limit=50))
        return types.ListResourcesResult(
            resources=[
                types.Resource(
                    uri=f"{PREFIX}{worker.worker_id}{SUFFIX}",
                    name=f"{worker.worker_id} ({worker.state})",
                    description=worker.task,
                    mime_type="text/plain",
                )
                for worker in listed.workers
            ]
        )

    async def _list_templates(self, _: Context, __: object) -> types.ListResourceTemplatesResult:
        template = types.ResourceTemplate(
            uri_template=f"{PREFIX}{{id}}{SUFFIX}",
            name="worker output",
            description="Everything a worker said and did, whole.",
            mime_type="text/plain",
        )
        return types.ListResourceTemplatesResult(resource_templates=[template])

    async def _read_resource(
        self, _: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = params.uri
        if not (uri.startswith(PREFIX) and uri.endswith(SUFFIX)):
            raise _bad_request(f"unknown resource {uri!r}; outputs are {PREFIX}{{id}}{SUFFIX}")
        try:
            text = await self._enquiries.whole_output(uri[len(PREFIX) : -len(SUFFIX)])
        except GoentError as error:
            raise _bad_request(str(error)) from error
        contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
        return types.ReadResourceResult(contents=[contents])


def _reporter(context: Context) -> Callable[[Status], Coroutine[Any, Any, None]]:
    """Progress must grow, so it counts the reports; what there is to see is in the message."""
    reports = 0

    async def report(status: Status) -> None:
        nonlocal reports
        reports += 1
        percent = status.progress.percent
        share = "" if percent is None else f" {percent}%"
        message = f"{status.worker_id} {status.state}{share}: {status.step}"
        await context.session.report_progress(float(reports), message=message)

    return report


def _error(message: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=message)], is_error=True)


def _bad_request(message: str) -> MCPError:
    return MCPError(code=-32602, message=message)
