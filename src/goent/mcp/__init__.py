"""The MCP server: tools, resources, prompts, and calls that wait."""
