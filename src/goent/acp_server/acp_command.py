"""Runs `go-ent acp`: reads its options, and answers the handshake before loading anything heavy."""

from collections.abc import Sequence
from typing import NamedTuple

from goent import __version__

AGENT_TOOLS = ("Read", "Write", "Edit", "Bash", "Grep", "Glob", "TodoWrite")
AGENT_MODES = ("ask", "accept-edits", "plan")
_OPTIONS = ("--model", "--mode", "--allowed-tools")


class AgentCommand(NamedTuple):
    """The options of `go-ent acp`. `allowed_tools` None: all tools; empty: none."""

    model: str = "auto"
    mode: str = "ask"
    allowed_tools: frozenset[str] | None = None


def parse_acp_command(arguments: Sequence[str]) -> AgentCommand | None:
    """Parses plain, valid options quickly; None leaves anything else to the full command line."""
    options: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, given, value = word.partition("=")
        if name not in _OPTIONS or name in options:
            return None
        value = value if given else next(words, None)
        if value is None or (not value and name != "--allowed-tools"):
            return None
        options[name] = value
    mode, tools = options.get("--mode", "ask"), options.get("--allowed-tools")
    allowed = None if tools is None else tool_names(tools)
    if mode not in AGENT_MODES or (allowed and unknown_tool(allowed)):
        return None
    return AgentCommand(options.get("--model", "auto"), mode, allowed)


def tool_names(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def unknown_tool(names: frozenset[str]) -> str:
    """The first name that cannot be a tool; empty if all can."""
    unknown = (n for n in sorted(names) if n not in AGENT_TOOLS and not n.startswith("mcp__"))
    return next(unknown, "")


def run_acp(command: AgentCommand) -> int:
    """Serves one client until it hangs up; nothing of its sessions is left running."""
    from goent.acp_server.handshake import greet  # noqa: PLC0415 (the editor waits for its reply)

    greeting = greet(__version__)

    from goent.acp_server.server import serve_client  # noqa: PLC0415 (loads while the editor reads)

    serve_client(
        greeting, model=command.model, mode=command.mode, allowed_tools=command.allowed_tools
    )
    return 0
