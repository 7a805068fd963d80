"""A project with scripted workers behind a real socket, where the command line expects it."""

import os
import pty
import select
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio
import msgspec
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from held_lock import held_as_daemon
from scripted_project import OpenProject, Project

from goent import __version__
from goent.cli.main import run_cli
from goent.daemon.daemon_connection import PROTOCOL
from goent.daemon.daemon_server import ControlServices, serve_control
from goent.domain.replies import DaemonInfo
from goent.domain.settings import LimitSettings
from goent.operations.operation_table import Caller
from goent.rpc.byte_streams import LocalListener, LocalStream
from goent.system.project_folders import project_key, runtime_dir
from goent.testing.driver import ScriptedDriver, ScriptedTurns

PATIENCE = 60.0
# A session's first terminal becomes its own, so that Ctrl-C reaches it.
AT_TERMINAL = (
    "import os, sys; os.close(os.open(os.ttyname(0), os.O_RDWR)); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass
class Ended:
    code: int
    out: str
    err: str


@dataclass
class Desk:
    """What a person has: a command line in a project."""

    project: Project
    portal: BlockingPortal
    capture: pytest.CaptureFixture[str]
    driver: ScriptedDriver

    def go_ent(self, *arguments: str) -> Ended:
        code = run_cli(list(arguments))
        said = self.capture.readouterr()
        return Ended(code, said.out, said.err)

    def detached(self, task: str = "do it", *options: str) -> str:
        ended = self.go_ent("run", task, "--detach", *options)
        assert ended.code == 0, ended.err
        return ended.out.strip()

    def until(self, worker: str, state: str) -> None:
        """Wait until the worker's journal says so."""

        async def wait() -> None:
            feed = self.project.feed
            with anyio.fail_after(PATIENCE):
                while feed.view(worker).state != state:
                    await feed.wait_for_news(feed.seq)

        self.portal.call(wait)


class OpenDesk(Protocol):
    def __call__(
        self,
        turns: ScriptedTurns,
        limits: LimitSettings | None = None,
        *,
        permission_timeout_s: float = 300.0,
    ) -> AbstractContextManager[Desk]: ...


def desk_opener(open_project: OpenProject, capture: pytest.CaptureFixture[str]) -> OpenDesk:
    @contextmanager
    def open_(
        turns: ScriptedTurns,
        limits: LimitSettings | None = None,
        *,
        permission_timeout_s: float = 300.0,
    ) -> Generator[Desk]:
        with start_blocking_portal() as portal:
            driver = portal.call(ScriptedDriver, turns)
            opened = open_project(
                driver, limits=limits or LimitSettings(), permission_timeout_s=permission_timeout_s
            )
            with portal.wrap_async_context_manager(_served(opened)) as project:
                yield Desk(project, portal, capture, driver)

    return open_


@asynccontextmanager
async def _served(opened: AbstractAsyncContextManager[Project]) -> AsyncGenerator[Project]:
    async with opened as project:
        path = runtime_dir(project_key(project.folder), os.environ) / "sock"
        info = DaemonInfo(
            pid=os.getpid(),
            version=__version__,
            socket=str(path),
            project=str(project.folder),
            workers=0,
            http=None,
        )

        async def converse(stream: LocalStream) -> None:
            hello = {"goent": PROTOCOL, "version": __version__, "pid": info.pid}
            async with stream:
                await stream.send(msgspec.json.encode(hello) + b"\n")
                said = b""
                while b"\n" not in said:
                    said += await stream.receive()
                room = ControlServices(
                    operations=project.operations,
                    feed=project.feed,
                    info=lambda: info,
                    stop=_stop_if_forced,
                )
                caller = Caller(name="cli", cwd=project.folder)
                await serve_control(stream, said.partition(b"\n")[2], room, caller)

        with held_as_daemon(path.parent), LocalListener(path) as listener:
            async with anyio.create_task_group() as group:
                group.start_soon(listener.serve, converse)
                yield project
                group.cancel_scope.cancel()


def _stop_if_forced(*, if_idle: bool, handover: bool) -> bool:  # noqa: ARG001 (the port's)
    return not if_idle


class Person:
    """Somebody at a terminal: types keys and reads what stands there."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        program: Sequence[str] = ("-m", "goent"),
    ) -> None:
        self._ours, theirs = pty.openpty()
        theirs_alone = os.environ if env is None else env
        full = {"TERM": "xterm", "COLUMNS": "100", "LINES": "40", **theirs_alone}
        self._process = subprocess.Popen(
            [sys.executable, "-c", AT_TERMINAL, sys.executable, *program, *arguments],
            cwd=cwd,
            env=full,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self.seen = ""

    def sees(self, text: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen}"
            self._read(0.1)

    def types(self, keys: str) -> None:
        os.write(self._ours, keys.encode())

    def _read(self, seconds: float) -> None:
        if select.select([self._ours], [], [], seconds)[0]:
            try:
                self.seen += os.read(self._ours, 65536).decode(errors="replace")
            except OSError:  # the other side is gone
                time.sleep(seconds)

    def leaves(self) -> int:
        """The exit code, when the command has ended."""
        deadline = time.monotonic() + PATIENCE
        while self._process.poll() is None:
            assert time.monotonic() < deadline, f"still running: {self.seen}"
            self._read(0.05)
        self._read(0.05)
        os.close(self._ours)
        return self._process.returncode
