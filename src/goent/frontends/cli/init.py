"""How does a project begin to use go-ent? Settings to fill in, and an entry in `.mcp.json`."""

import os
import sys
from pathlib import Path

import msgspec

from goent.frontends.cli.client import Trouble
from goent.plain_files import NotPlain, check_no_link, plain_folder, read_plain
from goent.proc.programs import find_program

SERVER = "go-ent"
MOST_BYTES = 16_000_000
BROKEN = "nothing was changed. Mend it, or move it away, and run `go-ent init` again"


class _Server(msgspec.Struct, frozen=True):
    command: str
    args: tuple[str, ...] = ("mcp",)


def add_mcp_server(path: Path, *, replace: bool) -> bool:
    """Enter go-ent among a project's MCP servers; everything else in the file stays. True if changed."""
    document = _read(path)
    servers = document.setdefault("mcpServers", {})
    if not isinstance(servers, dict):
        raise Trouble(f"'mcpServers' in {str(path)!r} is not an object: {BROKEN}", 2)
    if SERVER in servers and not replace:
        return False
    servers[SERVER] = _Server(_own_command())
    text = msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"
    _write(path, text)
    return True


def _read(path: Path) -> dict[str, object]:
    try:
        check_no_link(path)
        text = read_plain(path, MOST_BYTES)
    except FileNotFoundError:
        return {}
    except NotPlain as error:
        raise Trouble(f"{error}: {BROKEN}", 2) from error
    except OSError as error:
        raise Trouble(f"{str(path)!r} cannot be read: {error.strerror}", 2) from error
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text.removeprefix(b"\xef\xbb\xbf"), type=dict[str, object])
    except msgspec.DecodeError as error:
        raise Trouble(f"{str(path)!r} is no JSON object ({error}): {BROKEN}", 2) from error


def _write(path: Path, text: bytes) -> None:
    """Whole or not at all: a full disk must not cost anybody their servers."""
    try:
        with plain_folder(path.parent) as folder:
            folder.replace(path.name, text)
    except NotPlain as error:
        raise Trouble(f"{error}: {BROKEN}", 2) from error
    except OSError as error:
        raise Trouble(f"{str(path)!r} cannot be written: {error.strerror}", 3) from error


def _own_command() -> str:
    """`go-ent` where the PATH has it, else where this one is."""
    if find_program(SERVER, os.environ):
        return SERVER
    beside = Path(sys.executable).with_name(SERVER)
    return str(beside) if beside.exists() else SERVER
