"""An MCP server made with the official SDK: `sdk_server.py [newer]` serves it on its pipes."""

import base64
import os
import subprocess
import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.types import (
    CallToolResult,
    EmbeddedResource,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from pydantic import BaseModel

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
mcp = MCPServer("sdk")


class Sum(BaseModel):
    total: int


@mcp.tool(annotations=ToolAnnotations(title="Add up", read_only_hint=True))
def add(a: int, b: int) -> Sum:
    """Add two numbers."""
    return Sum(total=a + b)


@mcp.tool()
def picture() -> Image:
    """Draw a pixel."""
    return Image(data=PIXEL, format="png")


@mcp.tool()
def resources() -> CallToolResult:
    """Tell of two files."""
    link = ResourceLink(type="resource_link", name="notes", uri="file:///notes.txt")
    body = TextResourceContents(uri="file:///body.txt", text="what is in it")
    return CallToolResult(content=[link, EmbeddedResource(type="resource", resource=body)])


@mcp.tool()
def fail() -> CallToolResult:
    """Fail."""
    return CallToolResult(content=[TextContent(type="text", text="no luck")], is_error=True)


@mcp.tool()
def much(size: int) -> str:
    """Say a lot."""
    return "x" * size


@mcp.tool()
def surroundings(name: str) -> str:
    """Tell a variable and the working directory."""
    return f"{os.environ.get(name)} {Path.cwd()}"


@mcp.tool()
async def roots(ctx: Context) -> str:
    """Ask the client for its directories."""
    told = await ctx.session.list_roots()  # pyright: ignore[reportDeprecated] (the older era has it)
    return " ".join(str(root.uri) for root in told.roots)


@mcp.tool()
async def hold(folder: str) -> str:
    """Wait until cancelled; files tell how far it came."""
    (Path(folder) / "held").touch()
    try:
        await anyio.sleep(60)
    finally:
        (Path(folder) / "cancelled").touch()
    return "let go"


@mcp.tool()
async def grow(ctx: Context) -> str:
    """Offer one tool more."""
    mcp.add_tool(lambda: "here I am", name="late", description="Came later.")
    await ctx.session.send_tool_list_changed()
    return "grown"


@mcp.tool()
def fork() -> str:
    """Leave a child behind, in a session of its own."""
    child = subprocess.Popen(["sleep", "300"], start_new_session=True)
    return str(child.pid)


@mcp.tool()
def die() -> str:
    """End in the middle of the call."""
    sys.stderr.write("I cannot go on\n")
    sys.stderr.flush()
    os._exit(7)


def refuse_the_handshake() -> None:
    """As a server of the newer era alone does; the SDK's own speaks both."""
    while os.read(0, 1) != b"\n":
        pass
    refusal = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no","data":{"supported":["2026-07-28"]}}}\n'
    os.write(1, refusal)


if __name__ == "__main__":
    if "newer" in sys.argv:
        refuse_the_handshake()
    mcp.run()
