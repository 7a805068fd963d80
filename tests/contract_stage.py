"""One go-ent with all its methods, and scripted models behind it, for the contract suite.

To put another method under the contract: register its driver in `goent.composition.app`, and add its `Stage` to
`STAGES`. A stage says only in what the method differs: whether the model's tools run, whether there is
a process at all, and which one may live on when its workers have closed.
"""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from opencode import LIGHT, opencode_binary

from goent.composition.app import App, open_app
from goent.domain.events import AnyEvent
from goent.domain.replies import Result, SpawnReply, Status
from goent.domain.types import ENDED_STATES, Method, Usage, Value
from goent.operations.operation_table import Caller
from goent.proc import process_table
from goent.system.process_protection import MARK_VARIABLE
from goent.system.project_folders import project_key
from goent.testing.hermetic_opencode import opencode_config
from goent.testing.script import Fault, Script, Step, call, case, fail, openai, say
from goent.testing.scripted_server import ScriptedModels

KEY = "sk-contract-7f3a9c51d2"
PATIENCE = 150.0  # seconds for a turn on a machine that has other things to do


class Stage(Value, frozen=True, kw_only=True):
    """`tools`: the model's tool calls are run. `process`: there is one to look into.

    `stays` are the subcommands of OpenCode that live on, warm, when a worker has closed. `shell` is
    the name of the tool that runs commands.
    """

    method: Method
    tools: bool = True
    process: bool = True
    stays: frozenset[str] = frozenset()
    shell: str = "bash"


STAGES = (
    Stage(method="acp", stays=frozenset({"acp"})),
    Stage(method="cli"),
    Stage(method="serve", stays=frozenset({"serve"})),
    Stage(method="api", tools=False, process=False),
    Stage(method="agent", shell="Bash"),
)
# What the provider does, and the failure that the worker's owner is told.
FAILURES = {
    "answer 401": "auth_refused",
    "answer 429": "rate_limited",
    "answer 500": "provider_down",
    "break off": "provider_down",
    "say nothing": "empty_turn",
    "hang": "timeout",
}


def of_its_own(task: str, method: Method) -> str:
    """A model for one task that fails: what it does tells nothing of the others."""
    return f"{task.replace(' ', '-')}-{method}"


HUGE = 10_000_000  # characters that a provider sends in one piece
SPENT = Usage(input=800, output=90, cache_read=200, reasoning=10)
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("say hello", say("Hello from {model}.", think="Somebody greets.", usage=SPENT)),
            case("answer 401", fail(401)),
            case("answer 429", Step(fault=Fault(status=429, retry_after=0))),
            case("answer 500", Step(fault=Fault(status=500, retry_after=0))),
            case(
                "break off",
                say("one two three four").having(chunk=4, fault=Fault(kind="cut", after=2)),
            ),
            case("Continue from exactly where it stops", fail("eof")),  # the gateway asks that
            case("say nothing", Step()),
            case("hang", fail("hang")),
            *(
                case(
                    f"sleep in {shell}",
                    call(shell, command="sleep 311 & sleep 311", description="s"),
                )
                for shell in ("bash", "Bash")
            ),
            case("swallow", say("Swallowed.")),
            case("say much", say("y" * HUGE).having(chunk=HUGE)),
            case(
                "write asked.txt",
                call("write", filePath="{cwd}/asked.txt", content="x\n").having(say="I write."),
            ),
            case(
                "work a little",
                call("write", filePath="{cwd}/made.txt", content="one\ntwo\n").having(
                    say="I begin."
                ),
                call("edit", filePath="{cwd}/made.txt", oldString="two\n", newString="2\n3\n"),
                call("bash", command="echo out; exit 3", description="fails"),
                call(
                    "todowrite",
                    todos=[{"content": "first", "status": "completed", "priority": "low"}],
                ),
                say("All done."),
            ),
            *(
                step
                for stage in STAGES
                for step in (
                    case(
                        f"look at {stage.method}", say("Seen.").having(gate=f"look-{stage.method}")
                    ),
                    case(
                        f"shut out {stage.method}", say("No.").having(gate=f"shut-{stage.method}")
                    ),
                )
            ),
            models=("glm-4", *(of_its_own(t, s.method) for t in FAILURES for s in STAGES)),
            key=KEY,
        ),
        "local": openai(
            case(
                "spend",
                call("bash", command="true", description="t").having(usage=SPENT),
                say("Spent.", usage=Usage(input=100, output=10)),
            ),
            models=("small",),
        ),
    }
)


class World:
    """go-ent in this process, and what a test asks of it."""

    def __init__(self, app: App, models: ScriptedModels, folder: Path) -> None:
        self.app = app
        self.models = models
        self.folder = folder
        self.project = app.project.folder
        self._caller = Caller(name="the test", cwd=self.project)

    async def ask(self, operation: str, **arguments: object) -> Value:
        return await self.app.operations.table[operation].call(arguments, self._caller)

    async def spawn(self, method: Method, task: str, **more: object) -> str:
        """Not waited for, by whichever method."""
        asked = {"provider": "moonshot", "permissions": "auto", "wait_s": 0, **more}
        spawned = await self.ask("worker_spawn", task=task, method=method, **asked)
        assert isinstance(spawned, SpawnReply) and spawned.method == method
        return spawned.worker_id

    async def ended(self, worker: str) -> Result:
        """The result of a worker whose turn has ended by itself."""
        with anyio.fail_after(PATIENCE):
            while self.app.feed.view(worker).state not in ENDED_STATES:
                await self.app.feed.wait_for_news(self.app.feed.seq)
        result = await self.ask("worker_result", worker_id=worker)
        assert isinstance(result, Result)
        return result

    async def run(self, method: Method, task: str, **more: object) -> Result:
        return await self.ended(await self.spawn(method, task, **more))

    async def status(self, worker: str) -> Status:
        status = await self.ask("worker_status", worker_id=worker)
        assert isinstance(status, Status)
        return status

    async def close(self, worker: str) -> None:
        await self.ask("worker_cancel", worker_id=worker, close=True)

    async def events(self, worker: str) -> list[AnyEvent]:
        await self.app.feed.commit()
        told = await self.app.feed.events(worker=worker, limit=100_000)
        return [envelope.event for envelope in told]

    def processes(self) -> dict[int, tuple[list[str], list[str]]]:
        """Arguments and environment of everything that go-ent has started and that lives."""
        needle = f"{project_key(self.project)}."
        found = dict[int, tuple[list[str], list[str]]]()
        for pid, environ in process_table.environments(f"{MARK_VARIABLE}="):
            if any(entry.startswith(f"{MARK_VARIABLE}=") and needle in entry for entry in environ):
                found[pid] = (_arguments(pid), environ)
        return found

    async def nothing_left(self) -> None:
        """Wait, not for long, until no process lives but what a method keeps warm."""
        stays = frozenset[str]().union(*(stage.stays for stage in STAGES))

        def is_warm(arguments: list[str]) -> bool:
            return arguments[1] in stays or arguments[3:4] == ["guard"]  # a server has one

        with anyio.fail_after(30):
            while not all(is_warm(arguments) for arguments, _ in self.processes().values()):  # noqa: ASYNC110 (a process announces nothing)
                await anyio.sleep(0.1)


def _arguments(pid: int) -> list[str]:
    try:
        said = os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        said = ""
    return [*said.split("\0"), ""]


@asynccontextmanager
async def contract_world(folder: Path, script: Script = SCRIPT) -> AsyncGenerator[World]:
    home, project = folder / "home", folder / "project"
    for path in (home / ".config" / "opencode", project / ".goent"):
        path.mkdir(parents=True)
    async with ScriptedModels(script) as models:
        keys = {"moonshot": "{env:MOONSHOT_API_KEY}", "local": ""}
        config = opencode_config(models, keys=keys).replace('"apiKey": "any"', '"apiKey": ""')
        (home / ".config" / "opencode" / "opencode.json").write_text(config)
        (home / ".config" / "go-ent").mkdir()
        (home / ".config" / "go-ent" / "providers.yaml").write_text(
            "providers: {direct: {provider: local, model: small, local: false}}\n"
        )
        (project / ".goent" / "config.yaml").write_text(
            "opencode: {profile: hermetic, warm: false}\nlimits: {workers: 3, stall_s: 600}\n"
        )
        environ = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "GOENT_OPENCODE": str(opencode_binary()),
            **LIGHT,
            "MOONSHOT_API_KEY": KEY,
        }
        async with open_app(project, environ) as app:
            yield World(app, models, folder)
