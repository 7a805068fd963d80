"""Runs `go-ent acp`: reads its options, and answers the greeting before anything heavy is loaded.

What it loads before the first reply decides how long an editor waits: the greeting, and no more.
"""

from collections.abc import Sequence
from typing import NamedTuple

from goent import __version__

AGENT_TOOLS = ("Read", "Write", "Edit", "Bash", "Grep", "Glob", "TodoWrite")
AGENT_MODES = ("ask", "accept-edits", "plan")
_OPTIONS = ("--model", "--mode", "--allowed-tools")


class AgentCommand(NamedTuple):
    """What the command line says. `allowed_tools` None: all; empty: none."""

    model: str = "auto"
    mode: str = "ask"
    allowed_tools: frozenset[str] | None = None


def parse_acp_command(arguments: Sequence[str]) -> AgentCommand | None:
    """The plain ways to say it, read at once; None leaves the rest to the command line proper."""
    told: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, given, value = word.partition("=")
        if name not in _OPTIONS or name in told:
            return None
        value = value if given else next(words, None)
        if value is None or (not value and name != "--allowed-tools"):
            return None
        told[name] = value
    if told.get("--mode", "ask") not in AGENT_MODES:
        return None
    tools = told.get("--allowed-tools")
    allowed = None if tools is None else tool_names(tools)
    if allowed and unknown_tool(allowed):
        return None
    return AgentCommand(told.get("--model", "auto"), told.get("--mode", "ask"), allowed)


def tool_names(text: str) -> frozenset[str]:
    return frozenset(name for part in text.split(",") if (name := part.strip()))


def unknown_tool(names: frozenset[str]) -> str:
    """One that there cannot be; empty if there is none."""
    strange = (n for n in sorted(names) if n not in AGENT_TOOLS and not n.startswith("mcp__"))
    return next(strange, "")


def run_acp(command: AgentCommand) -> int:
    """Serve one client until it hangs up; nothing of the sessions is left running."""
    from goent.acp_server.handshake import greet  # noqa: PLC0415 (see above)

    greeting = greet(__version__)

    from goent.acp_server.acp_connection import serve_client  # noqa: PLC0415 (see above)

    serve_client(
        greeting, model=command.model, mode=command.mode, allowed_tools=command.allowed_tools
    )
    return 0
