"""The command `go-ent init`: writes settings, and enters go-ent in the project's .mcp.json."""

import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from goent.cli.command_options import JsonOption
from goent.cli.daemon_client import CommandError
from goent.cli.display import print_json
from goent.config.starter_files import check_writable, write_starter
from goent.config.trust_survey import trust_starter
from goent.domain.types import Value
from goent.proc.programs import find_program
from goent.system.plain_files import NotPlainFile, check_no_link, plain_folder, read_plain
from goent.system.project_folders import UnsafeFolder, find_project


class InitResult(Value, frozen=True, kw_only=True):
    """The files that `init` wrote."""

    project: str
    written: tuple[str, ...]


def init(
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing go-ent entry in .mcp.json.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Set up this project: settings in .goent/, and go-ent as an MCP server in .mcp.json.

    Existing settings and other servers are left alone.
    """
    project = find_project(Path.cwd())
    servers = project / ".mcp.json"
    try:
        check_writable(project)  # first, so that a refusal has changed nothing
        entered = add_mcp_server(servers, replace=force)
        written = write_starter(project)
        trust_starter(project, os.environ, written)
    except UnsafeFolder:
        raise
    except NotPlainFile as error:
        raise CommandError(str(error), 2) from error
    except OSError as error:
        raise CommandError(f"cannot write in {str(project)!r}: {error}", 3) from error
    changed = [str(path.relative_to(project)) for path in (*written, *([servers] * entered))]
    if json:
        print_json(InitResult(project=str(project), written=tuple(changed)))
        return 0
    for name in changed or ["nothing to do: everything exists already"]:
        print(f"wrote {name}" if changed else name)
    print(
        f"\nNext, in {project}:\n"
        "  go-ent doctor       what works, what is missing\n"
        "  go-ent providers    the models your keys give you\n"
        "  go-ent trust        allow what you wrote in .goent/\n"
        '  go-ent run "…"      a first task\n'
        "Claude Code finds go-ent by .mcp.json when it starts in this folder."
    )
    return 0


SERVER_NAME = "go-ent"
MAX_BYTES = 16_000_000
REPAIR_HINT = "nothing was changed. Fix it, or move it away, and run `go-ent init` again"


class _McpServerEntry(msgspec.Struct, frozen=True):
    command: str
    args: tuple[str, ...] = ("mcp",)


def add_mcp_server(path: Path, *, replace: bool) -> bool:
    """Add go-ent to a project's MCP servers, keeping the rest of the file. True if it changed."""
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
            f"{str(path)!r} is not a JSON object ({error}): {REPAIR_HINT}", 2
        ) from error


def _write_document(path: Path, text: bytes) -> None:
    """Write all or nothing: a full disk must not lose the other servers."""
    try:
        with plain_folder(path.parent) as folder:
            folder.replace(path.name, text)
    except NotPlainFile as error:
        raise CommandError(f"{error}: {REPAIR_HINT}", 2) from error
    except OSError as error:
        raise CommandError(f"{str(path)!r} cannot be written: {error.strerror}", 3) from error


def _own_command() -> str:
    """`go-ent` if it is on the PATH, else the path of this one."""
    if find_program(SERVER_NAME, os.environ):
        return SERVER_NAME
    beside = Path(sys.executable).with_name(SERVER_NAME)
    return str(beside) if beside.exists() else SERVER_NAME
