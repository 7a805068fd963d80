"""The MCP servers that a session of the agent may use."""
