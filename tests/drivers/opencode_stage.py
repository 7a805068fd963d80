"""A real OpenCode behind the real gateway, with scripted models behind that."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal

import anyio
import msgspec
from opencode import LIGHT, opencode_binary
from witness import Witness

from goent.agents.driver_context import DriverContext
from goent.domain.errors import GoentError
from goent.domain.events import (
    DriverEvent,
    Noticed,
    PermissionAsked,
    PermissionWithdrawn,
    PlanUpdated,
    TextDelta,
    ToolCall,
    UsageReported,
)
from goent.domain.money import FinishedCall
from goent.domain.ports import WorkerSpec
from goent.domain.sandbox_port import SandboxSettings
from goent.domain.settings import Backend, OpenCodeSettings, PermissionRule, Settings
from goent.domain.types import Provider
from goent.gateway.gateway import Gateway
from goent.opencode.driver import OpenCodeDriver
from goent.opencode.process_care import CarePolicy
from goent.proc.process_table import marked_processes, new_owner
from goent.providers.call_plan import CallPlan, plan_call
from goent.providers.connections import Connections
from goent.providers.upstream import Upstream
from goent.testing.script import Script
from goent.testing.scripted_server import ScriptedModels

ALLOW = tuple(
    PermissionRule(tool=tool, action="allow") for tool in ("edit", "bash", "webfetch", "task")
)
ASK = tuple(PermissionRule(tool=tool, action="ask") for tool in ("edit", "bash"))
KEYS = {"MOONSHOT_API_KEY": "sk-moon", "DEEPSEEK_API_KEY": "sk-deep"}
PATIENCE = 60.0

CHECKOUT = Path(__file__).parents[
    2
]  # with the programs in node_modules; it may lie in a temporary folder


class Stage:
    """Everything that a driver needs around it, and what the tests look at afterwards."""

    def __init__(self, models: ScriptedModels, settings: Settings, folder: Path) -> None:
        self.models = models
        self.settings = settings
        self.folder = folder
        self.witness = Witness()
        self.fallbacks: list[Provider] = []
        self.care = CarePolicy()
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "SHELL_LEFTOVER": "1",
            **LIGHT,
            **KEYS,
        }
        self._driver: OpenCodeDriver | None = None
        self._workers = 0

    @property
    def driver(self) -> OpenCodeDriver:
        assert self._driver
        return self._driver

    @property
    def calls(self) -> list[FinishedCall]:
        return self.witness.calls

    def course(self, worker: str, backend: str, model: str) -> CallPlan:
        assert worker
        provider = Provider(name=f"{backend}/{model}", backend=backend, model=model)
        return plan_call(provider, self.fallbacks, self.settings.backends, self.environ)

    @asynccontextmanager
    async def running(self) -> "AsyncGenerator[Stage]":
        async with (
            self.gateway() as gate,
            OpenCodeDriver.running(
                DriverContext(
                    settings=lambda: self.settings,
                    environ=lambda: self.environ,
                    state_dir=self.folder / "state",
                ),
                gate,
                owner=new_owner("drivers"),
                care=lambda: self.care,
            ) as driver,
        ):
            self._driver = driver
            yield self

    @asynccontextmanager
    async def gateway(self) -> AsyncGenerator[Gateway]:
        async with (
            Connections.open() as connections,
            Gateway.open(Upstream(connections, self.witness), self.course) as gate,
        ):
            yield gate

    def spec(
        self,
        cwd: Path,
        provider: str = "glm",
        *,
        rules: Sequence[PermissionRule] = ALLOW,
        dedicated: bool = False,
        resume: str | None = None,
    ) -> WorkerSpec:
        self._workers += 1
        chosen = next(p for p in self.settings.providers if p.name == provider)
        return WorkerSpec(
            id=f"w{self._workers}",
            cwd=cwd,
            provider=chosen,
            method="acp",
            rules=tuple(rules),
            dedicated=dedicated,
            resume=resume,
        )

    def use(self, **changes: object) -> None:
        self.settings = msgspec.structs.replace(self.settings, **changes)


def processes(*arguments: str) -> set[int]:
    """The living processes of this test run with these arguments, the program's path apart."""
    found = set[int]()
    for pid in marked_processes(new_owner("drivers")):
        with suppress(OSError):
            said = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if tuple(said[1 : 1 + len(arguments)]) == arguments:
                found.add(pid)
    return found


class Heard:
    """What a worker said, and a barrier on it."""

    def __init__(self) -> None:
        self.events: list[DriverEvent] = []
        self.errors: list[GoentError] = []
        self._changed = anyio.Event()

    async def emit(self, event: DriverEvent) -> None:
        self.events.append(event)
        self._changed.set()
        self._changed = anyio.Event()

    @property
    def text(self) -> str:
        return "".join(event.text for event in self.events if isinstance(event, TextDelta))

    @property
    def tools(self) -> list[ToolCall]:
        return [event for event in self.events if isinstance(event, ToolCall)]

    @property
    def ended_tools(self) -> list[ToolCall]:
        return [tool for tool in self.tools if tool.status in ("completed", "failed")]

    @property
    def plans(self) -> list[PlanUpdated]:
        return [event for event in self.events if isinstance(event, PlanUpdated)]

    @property
    def questions(self) -> list[PermissionAsked]:
        return [event for event in self.events if isinstance(event, PermissionAsked)]

    @property
    def withdrawn(self) -> list[PermissionWithdrawn]:
        return [event for event in self.events if isinstance(event, PermissionWithdrawn)]

    @property
    def notices(self) -> list[Noticed]:
        return [event for event in self.events if isinstance(event, Noticed)]

    @property
    def usage(self) -> list[UsageReported]:
        return [event for event in self.events if isinstance(event, UsageReported)]

    async def until(self, true: Callable[[], object]) -> None:
        with anyio.fail_after(PATIENCE):
            while not true():
                await self._changed.wait()

    async def question(self, n: int = 1) -> PermissionAsked:
        await self.until(lambda: len(self.questions) >= n)
        return self.questions[n - 1]


def settings(models: ScriptedModels, project: Path, opencode: OpenCodeSettings) -> Settings:
    held = {"moonshot": "MOONSHOT_API_KEY", "deepseek": "DEEPSEEK_API_KEY"}
    backends = {
        name: Backend(id=name, base_url=models.base_url(name), key_env=variable)
        for name, variable in held.items()
    }
    backends["local"] = Backend(id="local", base_url=models.base_url("local"))
    return Settings(
        project=project,
        providers=(
            Provider(name="glm", backend="moonshot", model="glm-4", context_limit=128_000),
            Provider(name="kimi", backend="moonshot", model="kimi-k2"),
            Provider(name="deepseek", backend="deepseek", model="deepseek-coder"),
            Provider(name="local", backend="local", model="small"),
        ),
        backends=backends,
        opencode=opencode,
        sandbox=SandboxSettings(readable=(CHECKOUT,)),
    )


def opencode_settings(profile: Literal["user", "hermetic"] = "hermetic") -> OpenCodeSettings:
    return OpenCodeSettings(command=str(opencode_binary()), profile=profile)


@asynccontextmanager
async def stage(
    script: Script, folder: Path, profile: Literal["user", "hermetic"] = "hermetic"
) -> AsyncGenerator[Stage]:
    project = folder / "project"
    project.mkdir()
    async with ScriptedModels(script) as models:
        built = Stage(models, settings(models, project, opencode_settings(profile)), folder)
        async with built.running():
            yield built
