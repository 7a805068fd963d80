"""Enters go-ent in a project's .mcp.json, and lists the models that its agent can use."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

from goent.agent.agent_ports import AuthRequired, ModelChoice
from goent.cli.daemon_client import CommandError
from goent.composition.agent_app import open_agent
from goent.proc.programs import find_program
from goent.system.plain_files import NotPlainFile, check_no_link, plain_folder, read_plain

SERVER_NAME = "go-ent"
MAX_BYTES = 16_000_000
REPAIR_HINT = "nothing was changed. Mend it, or move it away, and run `go-ent init` again"


class _McpServerEntry(msgspec.Struct, frozen=True):
    command: str
    args: tuple[str, ...] = ("mcp",)


def add_mcp_server(path: Path, *, replace: bool) -> bool:
    """Enter go-ent among a project's MCP servers; everything else in the file stays. True if changed."""
    document = _read_document(path)
    servers = document.setdefault("mcpServers", {})
    if not isinstance(servers, dict):
        raise CommandError(f"'mcpServers' in {str(path)!r} is not an object: {REPAIR_HINT}", 2)
    if SERVER_NAME in servers and not replace:
        return False
    servers[SERVER_NAME] = _McpServerEntry(_own_command())
    text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    _write_document(path, text)
    return True


def _read_document(path: Path) -> dict[str, object]:
    try:
        check_no_link(path)
        text = read_plain(path, MAX_BYTES)
    except FileNotFoundError:
        return {}
    except NotPlainFile as error:
        raise CommandError(f"{error}: {REPAIR_HINT}", 2) from error
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be read: {error.strerror}", 2) from error
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"), type=dict[str, object])
    except msgspec.DecodeError as error:
        raise CommandError(
            f"{str(path)!r} is no JSON object ({error}): {REPAIR_HINT}", 2
        ) from error


def _write_document(path: Path, text: bytes) -> None:
    """Whole or not at all: a full disk must not cost anybody their servers."""
    try:
        with plain_folder(path.parent) as folder:
            folder.replace(path.name, text)
    except NotPlainFile as error:
        raise CommandError(f"{error}: {REPAIR_HINT}", 2) from error
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error.strerror}", 3) from error


def _own_command() -> str:
    """`go-ent` where the PATH has it, else where this one is."""
    if find_program(SERVER_NAME, os.environ):
        return SERVER_NAME
    beside = Path(sys.executable).with_name(SERVER_NAME)
    return str(beside) if beside.exists() else SERVER_NAME


def log_in() -> int:
    """Well if there is a model to ask; how to give a key, if there is none."""
    found = anyio.run(_ready_models)
    if isinstance(found, AuthRequired):
        raise CommandError(str(found), 1)
    print("go-ent's agent can ask:")
    for model in found:
        print(f"  {model.id}")
    print("There is nothing to do. In your editor, begin a new session.")
    return 0


async def _ready_models() -> Sequence[ModelChoice] | AuthRequired:
    async with open_agent(os.environ) as agent:
        try:
            return await agent.ready()
        except AuthRequired as error:
            return error
