"""Serve a script as a process of its own: `python -m goent.testing SCRIPT.yaml [--port N]`.

The first line on stdout is the address, as JSON. The server ends when its stdin does (so it
cannot outlive whoever started it) or on SIGTERM or SIGINT, and its last line is the bill.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
import msgspec

from goent.domain.errors import ConfigError
from goent.testing.script import Script, load_script
from goent.testing.scripted_server import ScriptedModels


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m goent.testing")
    parser.add_argument("script", type=Path, help="the script, a YAML file")
    parser.add_argument("--port", type=int, default=0, help="the port (default: a free one)")
    arguments = parser.parse_args(namespace=_Arguments())
    try:
        script = load_script(arguments.script)
    except ConfigError as error:
        parser.exit(error.exit_code, f"{error}\n")
    anyio.run(_serve, script, arguments.port)


class _Arguments(argparse.Namespace):
    script: Path
    port: int


async def _serve(script: Script, port: int) -> None:
    async with ScriptedModels(script, port=port) as server:
        urls = {name: server.base_url(name) for name in script.providers}
        _tell({"url": server.url, "providers": urls})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_on_signal, tasks.cancel_scope.cancel)
            tasks.start_soon(_on_end_of_stdin, tasks.cancel_scope.cancel)
        billed = {name: server.billed(name) for name in script.providers}
        _tell({"calls": len(server.calls), "billed": billed})


async def _on_signal(stop: Callable[[], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            stop()
            return


async def _on_end_of_stdin(stop: Callable[[], None]) -> None:
    stdin = sys.stdin.fileno()
    while True:
        with suppress(PermissionError):  # epoll takes no files; those are always readable
            await anyio.wait_readable(stdin)
        if not os.read(stdin, 4096):
            break
    stop()


def _tell(line: object) -> None:
    with suppress(BrokenPipeError):  # whoever started us may be dead; that is how we learn it
        os.write(sys.stdout.fileno(), msgspec.json.encode(line) + b"\n")


if __name__ == "__main__":
    main()
