"""The method `agent` behind the real gateway, with an agent that does what its prompt says."""

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
from opencode_stage import Heard
from witness import Witness

from goent.agents.driver import AgentDriver
from goent.agents.driver_context import DriverContext
from goent.domain.errors import GoentError
from goent.domain.ports import TurnStopReason, WorkerSession, WorkerSpec
from goent.domain.sandbox_port import SandboxSettings
from goent.domain.settings import AgentSettings, LimitSettings, PermissionRule, Settings
from goent.domain.types import Preset, Prompt, Provider
from goent.gateway.gateway import Gateway
from goent.permissions.permission_rules import rules_for
from goent.proc.process_table import is_alive, marked_processes, new_owner
from goent.providers.call_plan import CallPlan
from goent.providers.connections import Connections
from goent.providers.upstream import Upstream

ACTOR = Path(__file__).with_name("agent_actor.py")
OWNER = "agents"

# What it asks for.
EDIT = {"kind": "edit", "title": "Edit a.txt", "rawInput": {"file_path": "a.txt"}}
BASH = {"kind": "execute", "title": "make", "rawInput": {"command": "make"}}
AWAY = {"kind": "edit", "title": "Edit", "locations": [{"path": "/etc/motd"}]}


def nowhere(worker: str, backend: str, model: str) -> CallPlan:
    raise AssertionError((worker, backend, model))


class Stage:
    """A driver, and workers on an actor with these flags."""

    def __init__(
        self, folder: Path, *flags: str, grace: float = 10.0, patience: float = 30
    ) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir(exist_ok=True)
        self.kept = folder / "sessions"
        self.kept.mkdir(exist_ok=True)
        command = (sys.executable, str(ACTOR), *flags)
        self.settings = Settings(
            project=self.project,
            agents={"actor": AgentSettings(command=command, start_timeout_s=patience)},
            limits=LimitSettings(cancel_grace_s=grace),
            usual_keys=("SECRET_API_KEY",),
            sandbox=SandboxSettings(writable=(self.kept,), readable=(ACTOR.parents[2],)),
        )
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "SECRET_API_KEY": "sk-held",
            "GOENT_LOG": "DEBUG",
            "EDITOR": "ed",
        }
        self.owner = new_owner(OWNER)
        self.shared = False
        self._driver: AgentDriver | None = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Stage"]:
        async with (
            Connections.open() as connections,
            Gateway.open(Upstream(connections, Witness()), nowhere) as gate,
            AgentDriver.running(
                DriverContext(
                    settings=lambda: self.settings,
                    environ=lambda: self.environ,
                    state_dir=self.folder,
                ),
                gate,
                owner=self.owner,
                shared=lambda _worker, _since: self.shared,
            ) as self._driver,
        ):
            yield self
        assert not list(marked_processes(self.owner)), "an agent has left something behind"

    def open(
        self,
        *,
        model: str = "",
        permissions: Preset = "ask",
        extra: Sequence[PermissionRule] = (),
        resume: str | None = None,
        cwd: Path | None = None,
        inside: str = "",
    ) -> AbstractAsyncContextManager[WorkerSession]:
        assert self._driver
        spec = WorkerSpec(
            id="w-actor",
            cwd=cwd or self.project,
            provider=Provider(name="actor", backend="actor", model=model, method="agent"),
            method="agent",
            rules=rules_for(permissions, extra, inside),
            resume=resume,
        )
        return self._driver.open(spec)

    def at_work(self) -> set[int]:
        return set(marked_processes(self.owner))

    async def until_dead(self, process: int) -> None:
        """One that dies has lost its mark a moment before the kernel calls it dead."""
        with anyio.fail_after(20):
            while is_alive(process):  # noqa: ASYNC110 (it announces nothing to us)
                await anyio.sleep(0.02)

    async def until_at_work(self, processes: int) -> None:
        """A process shows its mark only when it is through its exec, and is gone when reaped."""
        with anyio.fail_after(20):
            while len(self.at_work()) != processes:  # noqa: ASYNC110 (it announces nothing to us)
                await anyio.sleep(0.02)


async def ask(session: WorkerSession, text: str, heard: Heard | None = None) -> Heard:
    """Take a turn to its end."""
    heard = heard or Heard()
    assert await session.prompt(Prompt(text=text), heard.emit) == "end"
    return heard


class Turn:
    """A turn under way, for a test that has something to do meanwhile."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.reason: TurnStopReason | None = None
        self.error: GoentError | None = None

    async def take(self, session: WorkerSession, text: str) -> None:
        try:
            self.reason = await session.prompt(Prompt(text=text), self.heard.emit)
        except GoentError as error:
            self.error = error


@asynccontextmanager
async def during(session: WorkerSession, text: str) -> AsyncGenerator[Turn]:
    turn = Turn()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn.take, session, text)
        yield turn
