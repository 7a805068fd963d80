"""A user's whole world, private to a test: home, project, scripted models, go-ent, OpenCode.

Only the models are scripted. go-ent runs as its own processes, as a user starts it.
"""

import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import msgspec
from mcp import Client, StdioServerParameters
from mcp_types import CallToolResult, TextContent
from opencode import LIGHT, opencode_binary

from goent.cli.trust import project_acts
from goent.config.trust_records import grant
from goent.domain.events import EventEnvelope
from goent.domain.replies import DaemonInfo
from goent.opencode.process_launch import fake_plugin_install
from goent.proc import process_table
from goent.store.journal_store import SqliteJournal
from goent.system.process_protection import MARK_VARIABLE
from goent.system.project_folders import project_key, runtime_dir, state_dir
from goent.system.project_lock import lock_holder
from goent.testing.hermetic_opencode import opencode_config
from goent.testing.script import Script, case, openai, say
from goent.testing.scripted_server import ScriptedModels

GO_ENT = [sys.executable, "-m", "goent"]
KEYS = {
    "moonshot": "MOONSHOT_API_KEY",
    "deepseek": "DEEPSEEK_API_KEY",
    "claude": "CLAUDE_KEY",
    "gone": "GONE_KEY",
}
PLAIN = Script(
    providers={"moonshot": openai(case(None, say("Hello.")), key="sk-moonshot-real-key")}
)
COLD = "opencode: {profile: hermetic, warm: false}\n"
# An OpenCode that never comes up: its workers are busy, and cost nothing.
SILENT = "#!/bin/sh\ncase $1 in --version) echo 1.18.33 ;; *) exec sleep 600 ;; esac\n"


@dataclass(frozen=True)
class Ended:
    exit: int
    out: str
    err: str


@dataclass
class World:
    home: Path
    project: Path
    models: ScriptedModels
    env: dict[str, str] = field(default_factory=dict[str, str])

    def client(self, *, mode: Any = "auto", args: tuple[str, ...] = ("mcp",)) -> Client:
        """A lead agent: the MCP SDK's own client, with `go-ent mcp` as its child."""
        return Client(
            StdioServerParameters(
                command=GO_ENT[0], args=[*GO_ENT[1:], *args], env=self.env, cwd=self.project
            ),
            mode=mode,
        )

    async def go_ent(self, *args: str, stdin: str = "", seconds: float = 60) -> Ended:
        with anyio.fail_after(seconds):
            done = await anyio.run_process(
                [*GO_ENT, *args], cwd=self.project, env=self.env, input=stdin.encode(), check=False
            )
        return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())

    def trust(self) -> None:
        """The user says yes to what is in their project now."""
        grant(self.project, self.env, project_acts(self.project, self.env))

    @property
    def key(self) -> str:
        return project_key(self.project)

    @property
    def socket(self) -> Path:
        return runtime_dir(self.key, self.env) / "sock"

    async def daemon(self) -> DaemonInfo | None:
        ended = await self.go_ent("daemon", "status", "--json")
        return msgspec.json.decode(ended.out, type=DaemonInfo | None)

    async def journal(self, worker: str) -> list[EventEnvelope]:
        path = state_dir(self.env) / "projects" / self.key / "journal.db"
        async with SqliteJournal.open(path) as journal:
            return await journal.read(worker=worker, limit=100_000)

    def processes(self) -> list[int]:
        """Everything that go-ent started for this project and that still lives."""
        needle = f"{MARK_VARIABLE}={self.key}."
        found = process_table.environments(needle)
        return [pid for pid, environ in found if any(e.startswith(needle) for e in environ)]

    async def end(self) -> None:
        """As `go-ent daemon stop --force` does, without the cost of a command."""
        held = lock_holder(self.socket.parent)
        if held and held.pid:
            for number in (signal.SIGTERM, signal.SIGCONT):
                kill(held.pid, number)
            with anyio.move_on_after(30):
                while process_table.start_time(held.pid):  # noqa: ASYNC110 (a process announces nothing)
                    await anyio.sleep(0.02)
            kill(held.pid)
        with anyio.fail_after(20):
            while self.processes():  # noqa: ASYNC110 (a process announces nothing to strangers)
                await anyio.sleep(0.02)


@asynccontextmanager
async def a_world(
    folder: Path, script: Script, *, config: str = "", environ: Mapping[str, str] | None = None
) -> AsyncGenerator[World]:
    """Made below `folder`; on leaving, the daemon is stopped and nothing of it may be left."""
    home, project = folder / "home", folder / "project"
    for path in (home / "tmp", home / "run", project / ".goent"):
        path.mkdir(parents=True)
        path.chmod(0o700)
    async with ScriptedModels(script) as models:
        keys = {name: f"{{env:{KEYS[name]}}}" for name in script.providers if name in KEYS}
        opencode_json = home / ".config" / "opencode" / "opencode.json"
        fake_plugin_install(opencode_json.parent)
        opencode_json.write_text(opencode_config(models, keys=keys))
        (project / ".goent" / "config.yaml").write_text(
            config or "opencode: {profile: hermetic}\ndaemon: {idle_exit_s: 120}\n"
        )
        world = World(
            home=home,
            project=project,
            models=models,
            env={
                "HOME": str(home),
                "PATH": os.environ["PATH"],
                "TMPDIR": str(home / "tmp"),
                "XDG_RUNTIME_DIR": str(home / "run"),
                "LANG": "C.UTF-8",
                **LIGHT,
                "GOENT_OPENCODE": str(opencode_binary()),
                **{KEYS[name]: p.key or "" for name, p in script.providers.items() if name in KEYS},
                **(environ or {}),
            },
        )
        world.trust()
        try:
            yield world
        finally:
            with anyio.CancelScope(shield=True):
                await world.end()


@asynccontextmanager
async def a_cold_world(folder: Path, config: str = COLD) -> AsyncGenerator[World]:
    """For tests that need no OpenCode: the one here takes tasks, and never comes up."""
    silent = folder / "opencode"
    silent.write_text(SILENT)
    silent.chmod(0o700)
    environ = {"GOENT_OPENCODE": str(silent)}
    async with a_world(folder, PLAIN, config=config, environ=environ) as world:
        yield world


def told(result: CallToolResult) -> dict[str, Any]:
    """A tool's structured answer; a tool error fails the test."""
    assert not result.is_error, refusal(result)
    return msgspec.convert(result.structured_content, dict[str, Any])


def refusal(result: CallToolResult) -> str:
    assert isinstance(result.content[0], TextContent)
    return result.content[0].text


def kill(pid: int, number: signal.Signals = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
