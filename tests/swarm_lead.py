"""A lead over MCP that gives swarms in a repository of its own."""

from typing import Any

import anyio
from mcp import Client
from real_git import Repository
from world import World, told


class SwarmLead:
    def __init__(self, world: World, repository: Repository, lead: Client) -> None:
        self.world, self.repository, self.lead = world, repository, lead

    async def ask(self, tool: str, **arguments: object) -> dict[str, Any]:
        return told(await self.lead.call_tool(tool, arguments))

    async def until_over(self, swarm: str) -> dict[str, Any]:
        with anyio.fail_after(200):
            while True:
                status = await self.ask("swarm_wait", swarm_id=swarm, timeout_s=60)
                if status["state"] != "running":
                    return status
