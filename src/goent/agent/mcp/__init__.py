"""MCP servers that a client names for a session: their tools, as tools of the agent."""

from goent.agent.mcp.servers import Servers, open_servers

__all__ = ["Servers", "open_servers"]
