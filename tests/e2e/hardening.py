"""What the tests of daemon and shim share: a busy worker, other installations, a shim by hand."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream
from world import GO_ENT, World, kill

from goent.proc import process_table

RESOURCES = "notifications/resources/"
# For `another_installation`: one that asks a provider that has failed again as often as ever, but
# within a second or so.
ASKS_AGAIN_SOON = "import goent.providers.call_plan; goent.providers.call_plan.GROWTH = 0.1"


async def pid_of_daemon(world: World) -> int:
    """Of the one that runs, or that somebody is about to start; it answers by then."""
    with anyio.fail_after(20):
        while True:
            try:
                async with await anyio.connect_unix(world.socket) as stream:
                    pid: int = json.loads(await stream.receive())["pid"]
                    return pid
            except (OSError, anyio.EndOfStream, anyio.BrokenResourceError):
                await anyio.sleep(0.02)


async def a_busy_worker(world: World) -> str:
    started = await world.go_ent("run", "--detach", "--json", "hold")
    assert started.exit == 0, started.err
    worker: str = json.loads(started.out)["worker_id"]
    await until(world.processes)
    return worker


async def until(seen: Callable[[], object], seconds: float = 20) -> None:
    with anyio.fail_after(seconds):
        while not seen():  # noqa: ASYNC110 (files and processes announce nothing)
            await anyio.sleep(0.02)


async def end(pid: int) -> None:
    kill(pid)
    await until(lambda: process_table.start_time(pid) is None)


@contextmanager
def another_installation(world: World, statement: str) -> Generator[None]:
    """What is started inside comes from a go-ent that differs in one thing."""
    folder = world.home / "other"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(statement)
    world.env["PYTHONPATH"] = str(folder)
    try:
        yield
    finally:
        del world.env["PYTHONPATH"]


class RawShim:
    """`go-ent mcp`, line by line."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self.process = process
        assert process.stdin and process.stdout
        self._stdin = process.stdin
        self._stdout = BufferedByteReceiveStream(process.stdout)

    async def send(self, text: bytes) -> None:
        await self._stdin.send(text)

    async def ask(self, number: int, method: str, params: dict[str, object] | None = None) -> None:
        await self.send(line(number, method, params))

    async def answer(self, seconds: float = 30) -> dict[str, Any]:
        """The next message that is no mere news of the resources."""
        message: dict[str, Any] = {"method": RESOURCES}
        with anyio.fail_after(seconds):
            while str(message.get("method")).startswith(RESOURCES):
                message = json.loads(await self._stdout.receive_until(b"\n", 1 << 20))
        return message

    async def done(self, seconds: float = 20) -> int:
        await self._stdin.aclose()
        with anyio.fail_after(seconds):
            return await self.process.wait()


def line(number: int, method: str, params: dict[str, object] | None = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
    return json.dumps(message).encode() + b"\n"


HANDSHAKE: dict[str, object] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
MODERN: dict[str, object] = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


@asynccontextmanager
async def a_shim(
    world: World, *, program: str = "", stderr: int | None = None
) -> AsyncGenerator[RawShim]:
    command = [sys.executable, "-c", program] if program else [*GO_ENT, "mcp"]
    async with await anyio.open_process(
        command, cwd=world.project, env=world.env, stderr=stderr
    ) as process:
        try:
            yield RawShim(process)
        finally:
            kill(process.pid)


@contextmanager
def read_only(folder: Path) -> Generator[None]:
    """A mode keeps everybody out but root; a mount keeps out root as well."""
    if os.geteuid() == 0:
        with mounted(folder, "ro"):
            yield
        return
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        yield
    finally:
        folder.chmod(stat.S_IRWXU)


@contextmanager
def mounted(folder: Path, options: str) -> Generator[None]:
    run_program("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))
    try:
        yield
    finally:
        run_program("umount", "--lazy", str(folder))


def run_program(*command: str) -> None:
    subprocess.run(command, check=True, timeout=20)
