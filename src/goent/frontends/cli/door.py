"""`go-ent mcp --http`: holds the daemon's HTTP door open, and tells how to come in."""

from pathlib import Path
from typing import NoReturn

import msgspec

from goent.domain.types import Value
from goent.frontends.cli.client import Trouble
from goent.frontends.cli.show import print_json
from goent.launch import connect

ANSWER_S = 30.0
OTHER_VERSION = "`go-ent daemon stop` ends it, and the next command starts one of this version"


class Door(Value, frozen=True, kw_only=True):
    """Where MCP is spoken, and the token that lets in."""

    url: str
    token: str


class _Answer(Value, frozen=True, kw_only=True):
    url: str = ""
    token: str = ""
    error: str = ""
    refusal: str = ""


def hold_door(cwd: Path, port: int, *, json: bool) -> int:
    """Until Ctrl-C or the end of the daemon."""
    connection = connect(cwd, "http")
    with connection.socket as sock:
        try:
            sock.sendall(msgspec.json.encode({"port": port}) + b"\n")
            sock.settimeout(ANSWER_S)
            line = connection.rest
            while b"\n" not in line:
                line += sock.recv(4096) or _gone()
            sock.settimeout(None)
            _show(_parsed(line.partition(b"\n")[0]), json=json)
            while sock.recv(4096) or _gone():
                pass
        except KeyboardInterrupt:
            pass
        except OSError as error:
            raise Trouble(f"the daemon does not answer: {error}") from error
    return 0


def _parsed(line: bytes) -> Door:
    try:
        answer = msgspec.json.decode(line, type=_Answer)
    except msgspec.DecodeError as error:
        raise Trouble(f"the daemon's answer is not understood ({error}); {OTHER_VERSION}") from None
    if answer.refusal:
        raise Trouble(answer.refusal, 2)
    if answer.error:
        raise Trouble(f"{answer.error}; choose another with --port, or leave it out", 3)
    if not answer.url:
        raise Trouble(f"the daemon that runs knows no --http; {OTHER_VERSION}")
    return Door(url=answer.url, token=answer.token)


def _gone() -> NoReturn:
    raise Trouble("the daemon ended, and with it the listener; start this command again")


def _show(door: Door, *, json: bool) -> None:
    if json:
        print_json(door)
        return
    header = f"Bearer {door.token}"
    server = {"type": "http", "url": door.url, "headers": {"Authorization": header}}
    print(
        f"MCP is served at {door.url}\n"
        f"Header: Authorization: {header}\n\n"
        f"In Claude Code:\n  claude mcp add-json go-ent '{msgspec.json.encode(server).decode()}'\n\n"
        "It ends with this command (Ctrl-C), and the token with it. Workers live on.",
        flush=True,
    )
