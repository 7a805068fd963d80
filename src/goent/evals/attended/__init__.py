"""Evaluations that an MCP client asked for, run in the background."""
