"""FastMCP as an MCP client: reads calls of tools, a line of JSON each, and writes the answers."""

# FastMCP is installed apart from what the type checker sees: scripts/setup.py says where.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false

import asyncio
import json
import os
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport


async def main() -> None:
    command, *args = sys.argv[1:]
    async with Client(StdioTransport(command, args, env=dict(os.environ))) as client:
        say({"tools": [tool.name for tool in await client.list_tools()]})
        while line := await asyncio.to_thread(sys.stdin.readline):
            asked = json.loads(line)
            try:
                result = await client.call_tool(
                    asked["name"], asked["arguments"], raise_on_error=False
                )
            except Exception as thrown:  # noqa: BLE001 (whatever a client throws is its answer)
                say({"thrown": repr(thrown)})
                continue
            error = "\n".join(part.text for part in result.content) if result.is_error else None
            say({"structured": result.structured_content, "error": error})


def say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


asyncio.run(main())
