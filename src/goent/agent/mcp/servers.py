"""Which tools do the MCP servers of a session bring, and what is wrong with the servers?"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import chain, zip_longest

import anyio

from goent.agent.mcp.names import Names
from goent.agent.mcp.server import MOST_TOOLS, Patience, Server
from goent.agent.mcp.tools import McpTool
from goent.agent.ports import Desk, ServerSpec, Tool


class Servers:
    """The servers of one session. Ask again for each turn: servers come late, change, and die."""

    def __init__(self, servers: Sequence[Server]) -> None:
        self._servers = servers
        self._names = Names()

    @property
    def tools(self) -> Mapping[str, Tool]:
        """As many as a model takes; each server gives one in turn, so that none is crowded out."""
        columns = (
            [(place, server, offer) for offer in server.offers]
            for place, server in enumerate(self._servers)
        )
        in_turn = [offered for offered in chain.from_iterable(zip_longest(*columns)) if offered]
        tools: dict[str, Tool] = {}
        for place, server, offer in in_turn[:MOST_TOOLS]:
            name = self._names.name(place, server.name, offer.tool)
            tools[name] = McpTool(server, offer, name)
        return tools

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know of the servers, as it stands now."""
        said = tuple(warning for server in self._servers for warning in server.warnings)
        offered = sum(len(server.offers) for server in self._servers)
        if offered > MOST_TOOLS:
            said += (f"MCP servers: of their {offered} tools {MOST_TOOLS} are used, some of each",)
        return said


@asynccontextmanager
async def open_servers(
    servers: Sequence[ServerSpec], desk: Desk, *, patience: Patience | None = None
) -> AsyncGenerator[Servers]:
    """Start them all at once. They are gone when the context closes, with all that they started.

    A server that is slow to start is not waited for any longer than the others may want: its tools
    come when it does.
    """
    patience = patience or Patience()
    opened = [Server(spec, desk, patience) for spec in servers]
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        for server in opened:
            tasks.start_soon(server.run)
        with anyio.move_on_after(patience.wait_s):
            for server in opened:
                await server.settled.wait()
        try:
            yield Servers(opened)
        except Exception as error:  # noqa: BLE001 (raised below, as itself and not in a group)
            failure = error
        tasks.cancel_scope.cancel()
    if failure:
        raise failure
