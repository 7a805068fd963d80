"""Serves a script as its own process: `python -m goent.testing SCRIPT.yaml [--port N]`.

The first line on stdout is the address, as JSON, and the last one the bill. The server ends on SIGTERM
or SIGINT, or with its stdin, so that it cannot outlive whoever started it.
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
        _print({"url": server.url, "providers": urls})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_on_signal, tasks.cancel_scope.cancel)
            tasks.start_soon(_on_end_of_stdin, tasks.cancel_scope.cancel)
        billed = {name: server.billed(name) for name in script.providers}
        _print({"calls": len(server.calls), "billed": billed})


async def _on_signal(stop: Callable[[], None]) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            stop()
            return


async def _on_end_of_stdin(stop: Callable[[], None]) -> None:
    stdin = sys.stdin.fileno()
    while True:
        with suppress(PermissionError):  # epoll refuses files, which are always readable
            await anyio.wait_readable(stdin)
        if not os.read(stdin, 4096):
            break
    stop()


def _print(line: object) -> None:
    with suppress(BrokenPipeError):  # whoever started this process may be gone
        os.write(sys.stdout.fileno(), msgspec.json.encode(line) + b"\n")


if __name__ == "__main__":
    main()
