"""A run of evaluations on the real `opencode serve`, with scripted models behind go-ent's gateway."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from opencode import LIGHT, opencode_binary

from goent.composition.eval_models import MARK_KEY, open_opencode
from goent.domain.types import Usage
from goent.evals.eval_ports import CaseAttempt, StreamLogFile
from goent.evals.suites import EvalCase, InputMessage, SuiteLocation, TargetSpec
from goent.evals.targets.opencode_target import OpenCodeTarget
from goent.evals.targets.opencode_target_servers import EvalServers
from goent.evals.traces import PermissionDecision, TokenUsage, Trace, TracedMessage
from goent.evals.workspaces.workspace_folders import workspaces_root
from goent.opencode.process_launch import fake_plugin_install
from goent.proc.process_table import marked_processes, new_owner
from goent.testing.hermetic_opencode import opencode_config
from goent.testing.script import Script, Step, call, case, fail, openai, say
from goent.testing.scripted_server import ScriptedModels

KEY = "sk-moonshot-real-key-1234567890"
WRITE = call("write", filePath="{cwd}/made.txt", content="one\n")
CASES = (
    case("say hello", say("Hello from {model}.")),
    case("echo the prompt", say("[{prompt}]")),
    case(
        "work a little",
        WRITE.having(say="I begin. "),
        call("read", filePath="{cwd}/missing.txt"),
        call("bash", command="echo out", description="says out"),
        say("All done.", usage=Usage(input=80, output=9, cache_read=20)).having(chunk=2),
    ),
    case(
        "write through a link",
        call("write", filePath="{cwd}/away/made.txt", content="x\n"),
        say("Written."),
    ),
    case("run a command", call("bash", command="echo out", description="says out"), say("Ran.")),
    case("wait at the gate", say("I waited.").having(gate="door")),
    case("outstay the server", say("I did.").having(gate="worn")),
    case(
        "work and wait",
        call("glob", pattern="*.nothing").having(say="So far. "),
        say("I waited.").having(gate="later"),
    ),
    case("answer 401", fail(401)),
    case("refuse", Step(stop="content_filter")),
    case(
        "delegate writing",
        call("task", description="a part", prompt="work a little", subagent_type="general"),
        say("Delegated."),
    ),
    case(
        "delegate waiting",
        call("task", description="a part", prompt="work and wait", subagent_type="general"),
        say("Delegated."),
    ),
    case("use the tool", call("mine_wipe"), say("Used.")),
    case(
        "commit",
        call(
            "bash",
            command="git log --format=%s > log.txt; git add .; git -c user.name=A -c user.email=a@b commit -qm mine; git log --format=%s",
            description="commits",
        ),
        say("Committed."),
    ),
)


def script_for(folder: Path) -> Script:
    """What the models say; they know of two files in `folder`."""
    outside = (
        case(f"read {name}", call("read", filePath=str(folder / name)), say("Read."))
        for name in ("note.md", "answers.md")
    )
    rewrite = call("write", filePath=str(folder / "note.md"), content="forget it\n")
    delegate = call("task", description="d", prompt="read note.md", subagent_type="general")
    cases = (
        *CASES,
        *outside,
        case("rewrite note.md", rewrite, say("Written.")),
        case("delegate reading", delegate, say("Delegated.")),
    )
    return Script(
        providers={
            "moonshot": openai(*cases, models=("glm-4",), key=KEY),
            "local": openai(*cases, models=("small",)),
        }
    )


class Heard:
    """The port `AttemptObserver`."""

    def __init__(self) -> None:
        self.messages: dict[int, TracedMessage] = {}
        self._changed = anyio.Event()
        self.decisions: list[PermissionDecision] = []
        self.logs: list[StreamLogFile] = []
        self.warnings: list[str] = []
        self.usage: TokenUsage | None = None
        self.cost_usd: float | None = None

    async def told(self, text: str) -> None:
        """Wait until a message says this: it is told while the attempt goes on."""
        with anyio.fail_after(60):
            while all(said.content != text for said in self.messages.values()):
                await self._changed.wait()

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        self.messages[number] = message
        self._changed.set()
        self._changed = anyio.Event()

    def permission_decided(self, decision: PermissionDecision) -> None:
        self.decisions.append(decision)

    def usage_changed(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        self.usage, self.cost_usd = usage, cost_usd

    def log_started(self, chosen: StreamLogFile) -> None:
        self.logs.append(chosen)

    def warn(self, text: str) -> None:
        self.warnings.append(text)


class Evaluation:
    """The servers of a run, and what the tests look at beside them."""

    def __init__(self, models: ScriptedModels, project: Path, environ: dict[str, str]) -> None:
        self.models = models
        self.project = project
        self.environ = environ
        self._servers: EvalServers | None = None

    @property
    def workspaces(self) -> Path:
        return workspaces_root(self.environ)

    @property
    def servers(self) -> EvalServers:
        assert self._servers
        return self._servers

    @asynccontextmanager
    async def running(self) -> "AsyncGenerator[Evaluation]":
        async with open_opencode(self.project, self.environ) as self._servers:
            yield self

    def target(self, **settings: object) -> OpenCodeTarget:
        return OpenCodeTarget(spec(**{"model": "moonshot/glm-4", **settings}), self.servers)

    async def attempt(
        self, cwd: Path, text: str, heard: Heard | None = None, **settings: object
    ) -> Trace:
        target = self.target(**settings)
        return await target.invoke(an_attempt(cwd, text), heard or Heard())

    @property
    def direct(self) -> dict[str, object]:
        """A provider that only the target knows: its calls do not pass the gateway."""
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": self.models.base_url("local"), "apiKey": "any"},
            "models": {"small": {"tool_call": True, "cost": {"input": 1, "output": 2}}},
        }
        return {"provider": {"own": provider}}


def spec(**settings: object) -> TargetSpec:
    place = SuiteLocation(file="targets.yaml", line=3)
    wanted = {key: value for key, value in settings.items() if value is not None}
    return TargetSpec(name="coder", kind="opencode", settings=wanted, place=place)


def an_attempt(
    cwd: Path, *said: str | InputMessage, limit: float = 60, **more: object
) -> CaseAttempt:
    """The last thing said is what is asked."""
    spoken = tuple(
        InputMessage(role="user", text=one) if isinstance(one, str) else one for one in said
    )
    asked = EvalCase(id="greets", suite="s", form="v4", input=spoken, **more)  # pyright: ignore[reportArgumentType] (fields of a case)
    return CaseAttempt(case=asked, target="coder", cwd=cwd, timeout_s=limit)


def servers(owner: str | None = None) -> set[int]:
    """The `opencode serve` that this test run has started and that live."""
    found = set[int]()
    for pid in marked_processes(owner or new_owner(MARK_KEY)):
        with suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_text().split("\0")[1:2] == ["serve"]:
                found.add(pid)
    return found


@asynccontextmanager
async def a_home(folder: Path) -> AsyncGenerator[Evaluation]:
    """A user's home and project, and the models; nothing runs yet."""
    home, project = folder / "home", folder / "project"
    script = script_for(project)
    for path in (home / "tmp", home / "run", project / ".goent"):
        path.mkdir(parents=True)
        path.chmod(0o700)
    async with ScriptedModels(script) as models:
        config = home / ".config" / "opencode" / "opencode.json"
        fake_plugin_install(config.parent)
        named = Script(providers={"moonshot": script.providers["moonshot"]})
        keys = {"moonshot": "{env:MOONSHOT_API_KEY}"}
        config.write_text(opencode_config(named, url=models.url, keys=keys))
        (project / ".goent" / "config.yaml").write_text("opencode: {profile: hermetic}\n")
        environ = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "TMPDIR": str(home / "tmp"),
            "XDG_RUNTIME_DIR": str(home / "run"),
            "LANG": "C.UTF-8",
            **LIGHT,
            "GOENT_OPENCODE": str(opencode_binary()),
            "MOONSHOT_API_KEY": KEY,
        }
        yield Evaluation(models, project, environ)


@asynccontextmanager
async def evaluation(folder: Path) -> AsyncGenerator[Evaluation]:
    """With its servers; on leaving, none of them may be left."""
    async with a_home(folder) as built:
        async with built.running():
            yield built
        assert not servers()
