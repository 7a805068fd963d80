"""The whole agent in the test's own process: real tools, ledger and sessions, scripted models.

The editor on its other side writes down what it is told, and answers what it is asked.
"""

from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from goent.agent.agent_events import AnyAgentEvent, Noticed, Said, TextPart, ToolCalled
from goent.agent.agent_ports import ToolQuestion
from goent.agent.agent_session import AgentSession, TurnEnd
from goent.agent.coding_agent import CodingAgent
from goent.composition.agent_app import open_agent
from goent.config.trust_survey import trust_everything
from goent.domain.types import PermissionAnswer
from goent.testing.script import Script
from goent.testing.scripted_server import ScriptedModels

KEY = "sk-ant-real-key"
PROVIDERS = """
providers:
  haiku: {{provider: anthropic, model: claude-haiku, base_url: "{anthropic}", api_key_env: CLAUDE_KEY,
           price: {{input: 1, output: 5, cache_read: 0.1, cache_write: 1.25}}}}
  sonnet: {{provider: anthropic, model: claude-sonnet, price: {{input: 3, output: 15}}, fallbacks: [spare]}}
  spare: {{provider: other, model: glm-4, base_url: "{other}", api_key_env: OTHER_KEY,
           price: {{input: 1, output: 2}}}}
"""
Decide = Callable[[ToolQuestion], PermissionAnswer | None]


class Editor:
    """The port `Client`. `decide` answers; without it, nobody does."""

    files_read = None
    files_write = None
    terminals = None

    def __init__(self, decide: Decide | None = None) -> None:
        self.decide = decide
        self.told: dict[str, list[AnyAgentEvent]] = defaultdict(list)
        self.asked: list[ToolQuestion] = []
        self._news = anyio.Event()

    async def send(self, session: str, event: AnyAgentEvent) -> None:
        self.told[session].append(event)
        self._news.set()
        self._news = anyio.Event()

    async def ask(self, session: str, question: ToolQuestion) -> PermissionAnswer | None:
        self.asked.append(question)
        self._news.set()
        self._news = anyio.Event()
        if self.decide is None:
            await anyio.sleep_forever()
        return self.decide(question) if self.decide else None

    async def until(self, wanted: Callable[[], bool]) -> None:
        with anyio.fail_after(30):
            while not wanted():
                await self._news.wait()

    def text(self, session: str) -> str:
        said = (e for e in self.told[session] if isinstance(e, Said) and e.role == "agent")
        return "".join(event.text for event in said)

    def notices(self, session: str) -> list[str]:
        return [event.text for event in self.told[session] if isinstance(event, Noticed)]

    def calls(self, session: str) -> dict[str, list[ToolCalled]]:
        found: dict[str, list[ToolCalled]] = defaultdict(list)
        for event in self.told[session]:
            if isinstance(event, ToolCalled):
                found[event.id].append(event)
        return dict(found)

    def ends(self, session: str) -> list[ToolCalled]:
        """How each call ended, in the order in which they were told first."""
        return [states[-1] for states in self.calls(session).values()]


class AgentStage:
    """A user's machine with one project."""

    def __init__(self, folder: Path, models: ScriptedModels) -> None:
        self.models = models
        self.project = folder / "project"
        self.environ = {
            "HOME": str(folder / "home"),
            "PATH": "/usr/bin:/bin",
            "TMPDIR": str(folder / "home" / "tmp"),
            "CLAUDE_KEY": KEY,
            "OTHER_KEY": "sk-other-real-key",
        }
        for path in (folder / "home" / "tmp", self.project / ".goent"):
            path.mkdir(parents=True)
        self.configure("")

    def configure(self, config: str) -> None:
        addresses = {name: self.models.url + f"/{name}/v1" for name in ("anthropic", "other")}
        (self.project / ".goent" / "providers.yaml").write_text(PROVIDERS.format(**addresses))
        (self.project / ".goent" / "config.yaml").write_text(config)
        trust_everything(self.project, self.environ)

    @asynccontextmanager
    async def agent(
        self, *, model: str = "haiku", mode: str = "ask", tools: Sequence[str] | None = None
    ) -> AsyncGenerator[CodingAgent]:
        allowed = None if tools is None else frozenset(tools)
        environ = dict(self.environ)
        async with open_agent(environ, model=model, mode=mode, allowed_tools=allowed) as agent:
            yield agent

    @asynccontextmanager
    async def session(
        self, editor: Editor, *, model: str = "haiku", mode: str = "ask"
    ) -> AsyncGenerator[AgentSession]:
        async with self.agent(model=model, mode=mode) as agent:
            yield await agent.new(editor, self.project)


@asynccontextmanager
async def a_stage(folder: Path, script: Script) -> AsyncGenerator[AgentStage]:
    async with ScriptedModels(script) as models:
        yield AgentStage(folder, models)


async def say(session: AgentSession, text: str) -> TurnEnd:
    with anyio.fail_after(60):
        return await session.prompt([TextPart(text=text)])


def allow(_: ToolQuestion) -> PermissionAnswer:
    return "allow_once"


def reject(_: ToolQuestion) -> PermissionAnswer:
    return "reject"
