"""How clients reach the workers: over MCP, the daemon's socket, the command line."""
