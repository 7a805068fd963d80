"""Workers on the real OpenCode by every method, and what their owner is asked: for attacks on rules."""

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
import msgspec
from opencode import LIGHT, opencode_binary

from goent.composition.app import App, open_app
from goent.domain.errors import RequestError
from goent.domain.events import PermissionAsked
from goent.domain.replies import Result, SpawnReply
from goent.domain.types import ENDED_STATES, Method, PermissionAnswer, Preset, Value
from goent.opencode.process_launch import fake_plugin_install
from goent.operations.operation_table import Caller
from goent.testing.hermetic_opencode import opencode_config
from goent.testing.script import Script
from goent.testing.scripted_server import ScriptedModels

METHODS: tuple[Method, ...] = ("acp", "serve", "cli")
ASKING: tuple[Method, ...] = ("acp", "serve")  # by `cli`, nobody can be asked
KEY = "sk-attacked-51c2"
PATIENCE = 60.0  # seconds for a turn on a machine that has other things to do


class Outcome(Value, frozen=True, kw_only=True):
    """How a worker's turn went: what its owner was asked, and what came of it."""

    asked: tuple[PermissionAsked, ...]
    result: Result

    @property
    def details(self) -> list[str]:
        return [question.detail for question in self.asked]

    @property
    def failure(self) -> str:
        return self.result.failure.kind if self.result.failure else ""


class Workers:
    """go-ent in this process, and its user."""

    def __init__(self, app: App, models: ScriptedModels, home: Path) -> None:
        self.models = models
        self.home = home
        self.project = app.project.folder
        self._app = app
        self._caller = Caller(name="the test", cwd=self.project)

    async def run(
        self,
        method: Method,
        task: str,
        permissions: Preset,
        *,
        model: str = "glm-4",
        answer: PermissionAnswer = "reject",
        after: int = 1,
    ) -> Outcome:
        """A worker's whole turn. Its questions are answered as soon as there are `after` of them."""
        asked = {"model": f"moonshot/{model}", "permissions": permissions, "wait_s": 0}
        spawned = await self._ask("worker_spawn", task=task, method=method, **asked)
        assert isinstance(spawned, SpawnReply) and spawned.method == method
        worker, done = spawned.worker_id, 0
        questions = list[PermissionAsked]()
        with anyio.move_on_after(PATIENCE) as waiting:
            while True:
                seen, ended = self._app.feed.seq, self._app.feed.view(worker).state in ENDED_STATES
                questions = await self._questions(worker)
                if ended:
                    break
                if len(questions) >= after:
                    for question in questions[done:]:
                        await self._answer(worker, question, answer)
                    done = len(questions)
                await self._app.feed.wait_for_news(seen)
        assert not waiting.cancelled_caught, f"asked were only {questions}"
        result = await self._ask("worker_result", worker_id=worker)
        await self._ask("worker_cancel", worker_id=worker, close=True)
        assert isinstance(result, Result)
        return Outcome(asked=tuple(questions), result=result)

    def sessions(self) -> list[str]:
        """OpenCode's ids of the workers' sessions, in the order of the workers."""
        return [view.token for view in self._app.feed.views.values()]

    def told(self, prompt: str) -> str:
        """All that models were told by requests with such a prompt in them."""
        requests = [call.request for call in self.models.calls if call.request]
        return "\n".join(str(each) for each in requests if prompt in str(each.messages))

    def tool_results(self, prompt: str) -> list[str]:
        """What came of the calls in the last answer to a prompt, as its model was told."""
        requests = [call.request for call in self.models.calls if call.request]
        last = [request for request in requests if request.prompt == prompt][-1]
        return [message.text for message in last.messages if message.role == "tool"]

    async def _answer(
        self, worker: str, question: PermissionAsked, option: PermissionAnswer
    ) -> None:
        with suppress(RequestError):  # a rejection ends the turn, and with it the other questions
            await self._ask(
                "worker_answer", worker_id=worker, permission_id=question.id, option=option
            )

    async def _questions(self, worker: str) -> list[PermissionAsked]:
        await self._app.feed.commit()
        events = [each.event for each in await self._app.feed.events(worker=worker, limit=100_000)]
        return [event for event in events if isinstance(event, PermissionAsked)]

    async def _ask(self, operation: str, **arguments: object) -> Value:
        return await self._app.operations.table[operation].call(arguments, self._caller)


@asynccontextmanager
async def workers(
    folder: Path,
    script: Script,
    *,
    config: str = "opencode: {profile: hermetic, warm: false}\n",
    opencode: Mapping[str, object] | None = None,
) -> AsyncGenerator[Workers]:
    """Below `folder`, with the user's own `config`; `opencode` is added to their `opencode.json`."""
    home, project = folder / "home", folder / "project"
    project.mkdir()
    (home / ".config" / "go-ent").mkdir(parents=True)
    (home / ".config" / "go-ent" / "config.yaml").write_text(config)
    fake_plugin_install(home / ".config" / "opencode")
    async with ScriptedModels(script) as models:
        known = opencode_config(models, keys={"moonshot": "{env:MOONSHOT_API_KEY}"})
        merged = {**msgspec.json.decode(known, type=dict[str, object]), **(opencode or {})}
        (home / ".config" / "opencode" / "opencode.json").write_bytes(msgspec.json.encode(merged))
        environ = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "GOENT_OPENCODE": str(opencode_binary()),
            **LIGHT,
            "MOONSHOT_API_KEY": KEY,
        }
        async with open_app(project, environ) as app:
            yield Workers(app, models, home)
