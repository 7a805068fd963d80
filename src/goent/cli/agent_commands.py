"""The command `go-ent acp`, and `--login`, which lists the models that go-ent's agent can use."""

import os
from collections.abc import Sequence
from typing import Annotated

import anyio
import typer

from goent.acp_server import acp_command
from goent.agent.agent_ports import AuthRequired, ModelChoice
from goent.cli.daemon_client import CommandError
from goent.composition.agent_app import open_agent


def acp(
    *,
    model: Annotated[
        str,
        typer.Option(
            help="haiku, sonnet, a provider's name or backend/model; auto lets the task decide."
        ),
    ] = "auto",
    mode: Annotated[str, typer.Option(help="ask, accept-edits or plan.")] = "ask",
    allowed_tools: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="The only tools it offers and runs, e.g. Read,Grep,Glob; '': none.",
        ),
    ] = None,
    login: Annotated[
        bool, typer.Option("--login", help="List the models it can use, or how to give it a key.")
    ] = False,
) -> int:
    """Serve an editor (any ACP client) on stdin and stdout with go-ent's own agent."""
    if login:
        return log_in()

    if mode not in acp_command.AGENT_MODES:
        raise CommandError(
            f"there is no mode {mode!r}; one of {', '.join(acp_command.AGENT_MODES)}", 2
        )
    names = None if allowed_tools is None else acp_command.tool_names(allowed_tools)
    if names is not None and (strange := acp_command.unknown_tool(names)):
        known = ", ".join(acp_command.AGENT_TOOLS)
        raise CommandError(f"there is no tool {strange!r}; one of {known}, or mcp__SERVER__TOOL", 2)
    return acp_command.run_acp(acp_command.AgentCommand(model, mode, names))


def log_in() -> int:
    """List the models that the agent can use; fail with instructions if there is none."""
    found = anyio.run(_ready_models)
    if isinstance(found, AuthRequired):
        raise CommandError(str(found), 1)
    print("go-ent's agent can use:")
    for model in found:
        print(f"  {model.id}")
    print("No login is needed. Start a new session in your editor.")
    return 0


async def _ready_models() -> Sequence[ModelChoice] | AuthRequired:
    async with open_agent(os.environ) as agent:
        try:
            return await agent.ready()
        except AuthRequired as error:
            return error
