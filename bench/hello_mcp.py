"""The peer of `go-ent mcp`: the smallest server that the MCP SDK makes."""

from mcp.server import MCPServer

server = MCPServer("hello")


@server.tool()
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}."


if __name__ == "__main__":
    server.run()
