"""Runs the console script `go-ent`: chooses the program and loads only what that one needs."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def main() -> None:
    """Run the shim (`go-ent mcp`, standard library only), the agent (`go-ent acp`), or a command."""
    if sys.platform == "win32":
        sys.exit("go-ent does not run on Windows yet; inside WSL it does.")
    from goent.system.process_protection import harden  # noqa: PLC0415 (its imports do not exist on Windows)

    harden()
    arguments = sys.argv[1:]
    if arguments == ["mcp"]:
        from goent.daemon.shim import run_shim  # noqa: PLC0415 (a program loads only its own imports)

        sys.exit(run_shim(_here()))
    if arguments[:1] == ["serve-daemon"]:
        _serve_daemon(*arguments[1:])
    code = _agent(arguments[1:]) if arguments[:1] == ["acp"] else None
    if code is None:
        from goent.cli.main import run_cli  # noqa: PLC0415 (a program loads only its own imports)

        code = run_cli(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # an orderly shutdown of the interpreter costs a tenth of a second


def _serve_daemon(project: str, starter: str) -> None:
    """Run the daemon. It receives keys only now, when no other process can read its memory."""
    from goent.system.daemon_environment import receive_environment  # noqa: PLC0415 (a program loads only its own imports)

    receive_environment(int(starter))

    from goent.daemon.daemon_server import run_daemon  # noqa: PLC0415 (a program loads only its own imports)

    sys.exit(run_daemon(project, int(starter)))


def _agent(arguments: list[str]) -> int | None:
    from goent.acp_server.acp_command import parse_acp_command, run_acp  # noqa: PLC0415 (a program loads only its own imports)

    command = parse_acp_command(arguments)
    return run_acp(command) if command else None


def _here() -> "Path":
    from pathlib import Path  # noqa: PLC0415 (a program loads only its own imports)

    try:
        return Path.cwd()
    except FileNotFoundError:
        sys.stderr.write(
            "go-ent: the current directory no longer exists: change to one that does\n"
        )
        sys.exit(2)
