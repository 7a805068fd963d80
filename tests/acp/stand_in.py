"""A stand-in for the agent: sessions that do what the prompt says, without a model."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import anyio
from anyio.lowlevel import checkpoint
from msgspec import Raw

from goent.agent.agent_events import (
    AnyAgentEvent,
    Asked,
    DiffPart,
    FileLocation,
    FilePart,
    ImagePart,
    LinkPart,
    Noticed,
    OptionsChanged,
    PlanChanged,
    PromptPart,
    Retitled,
    Said,
    StateChanged,
    TextPart,
    ToolCalled,
    UsageChanged,
)
from goent.agent.agent_ports import (
    AgentClient,
    AuthRequired,
    McpServerSpec,
    ModelChoice,
    PermissionNeed,
    SessionBusy,
    ToolQuestion,
    UnknownSession,
)
from goent.agent.agent_session import AgentSession, SessionOptions, TurnEnd
from goent.agent.coding_agent import CodingAgent, SessionSummary
from goent.domain.errors import RateLimited, RequestError
from goent.domain.types import PlanEntry, Usage

MODELS = (
    ModelChoice(id="a/one", name="One", group="a"),
    ModelChoice(id="b/two", name="Two", description="the other", group="b"),
)
DIFF = DiffPart(path="/x/a.py", old="1\n", new="2\n")


class StandInSession(AgentSession):
    def __init__(self, client: AgentClient, name: str, cwd: Path) -> None:
        self.id = name
        self.cwd = cwd
        self.client = client
        self.given: list[Sequence[PromptPart]] = []
        self.closed = False
        self.deaf = False
        self.flooded = anyio.Event()
        self._options = SessionOptions(mode="ask", model="a/one", models=MODELS)
        self._scope: anyio.CancelScope | None = None
        self._said: list[str] = []

    @property
    def options(self) -> SessionOptions:
        return self._options

    @property
    def busy(self) -> bool:
        return self._scope is not None

    async def prompt(self, given: Sequence[PromptPart]) -> TurnEnd:
        if self._scope is not None:
            raise SessionBusy(self.id)
        self.given.append(given)
        self._said = []
        try:
            with anyio.CancelScope() as self._scope:
                await self.tell(StateChanged(state="running"))
                await self._act(given)
            stopped = self._scope.cancelled_caught
        finally:
            self._scope = None
        stop = "cancelled" if stopped else "end_turn"
        await self.tell(StateChanged(state="idle", stop_reason=stop))
        used = Usage(input=10, output=5, cache_read=3)
        return TurnEnd(
            stop_reason=stop, text="".join(self._said), usage=used, cost_usd=Decimal("0.25")
        )

    def cancel(self) -> None:
        if self._scope is not None and not self.deaf:
            self._scope.cancel()

    async def set_mode(self, mode: str) -> None:
        if mode not in ("ask", "accept-edits", "plan"):
            raise RequestError(f"no mode {mode!r}")
        self._options = SessionOptions(mode=mode, model=self._options.model, models=MODELS)
        await self.tell(OptionsChanged())

    async def set_model(self, model: str) -> None:
        if all(choice.id != model for choice in MODELS):
            raise RequestError(f"no model {model!r}")
        self._options = SessionOptions(mode=self._options.mode, model=model, models=MODELS)
        await self.tell(OptionsChanged())

    def history(self) -> Iterator[AnyAgentEvent]:
        if self.id == "long":
            for place in range(50_000):
                yield Said(message="m1", role="agent", text=f"{place} ")
        yield Asked(
            message="u1",
            given=(
                TextPart(text="hi"),
                ImagePart(media_type="image/png", data="AA=="),
                LinkPart(uri="file:///x/a.py"),
                FilePart(uri="file:///x/b.py", text="b"),
            ),
        )
        yield Said(message="m1", role="thought", text="hm")
        yield Said(message="m1", role="agent", text="hello")
        yield self.call("c1", "completed", output="done", code=0)

    async def greet(self) -> None:
        await self.tell(UsageChanged(used=1, size=1000, cost_usd=None))

    @property
    def said(self) -> int:
        return len(self._said)

    async def tell(self, event: AnyAgentEvent) -> None:
        await self.client.send(self.id, event)

    async def say(self, text: str) -> None:
        self._said.append(text)
        await self.tell(Said(message="m1", role="agent", text=text))

    def call(
        self, name: str, status: str, *, output: str = "", code: int | None = None
    ) -> ToolCalled:
        assert status in ("pending", "running", "completed", "failed")
        return ToolCalled(
            id=name,
            tool="Edit",
            kind="edit",
            title="Edit a.py",
            status=status,
            input=Raw(b'{"path":"\\ud83d"}' if name == "\udc80" else b'{"path":"/x/a.py"}'),
            shown=(DIFF,),
            locations=(FileLocation(path="/x/a.py", line=3),),
            output=output,
            exit=code,
        )

    async def ask(self) -> str:
        question = ToolQuestion(
            call="c1",
            tool="Edit",
            kind="edit",
            title="Edit a.py",
            need=PermissionNeed(permission="edit", patterns=("/x/a.py",), always=("/x",)),
            input=Raw(b'{"path":"/x/a.py"}'),
            shown=(DIFF,),
            locations=(FileLocation(path="/x/a.py", line=3),),
        )
        return str(await self.client.ask(self.id, question))

    async def _act(self, given: Sequence[PromptPart]) -> None:
        words = given[0].text.split() if isinstance(given[0], TextPart) else ["echo"]
        match words:
            case ["say", number]:
                for place in range(int(number)):
                    await self.say(f"{place} ")
            case ["say", number, "and", "ask"]:
                for place in range(int(number)):
                    await self.say(f"{place} ")
                await self.ask()
            case ["wait"]:
                await self.say("waiting")
                await anyio.sleep_forever()
            case ["ask"]:
                await self.tell(self.call("c1", "pending"))
                await self.say(await self.ask())
            case ["run", "and", "wait"]:
                await self.tell(self.call("c1", "running"))
                await anyio.sleep_forever()
            case ["plan", "and", "wait"]:
                done = tuple(PlanEntry(text=text, status="completed") for text in ("a", "b"))
                await self.tell(PlanChanged(entries=done))
                await anyio.sleep_forever()
            case ["tools"]:
                await self._tools()
            case _:
                await self._fail(words, len(given))

    async def _fail(self, words: list[str], parts: int) -> None:
        match words:
            case ["wait", "in", "vain"]:
                await self.say("waiting")
                try:
                    await anyio.sleep_forever()
                except anyio.get_cancelled_exc_class():
                    raise RateLimited("cut off") from None
            case ["flood"]:
                for place in range(5000):
                    await self.tell(self.call("c1", "running", output=f"{place} " * 1000))
                await self.tell(self.call("c1", "completed", output="over", code=0))
                self.flooded.set()
            case ["half"]:
                await self.tell(self.call("\udc80", "pending", output="\ud83d"))
                await self.say("caf\udce9")
            case ["fail"]:
                await self.say("part")
                raise RateLimited("a is out of breath")
            case ["bug"]:
                raise RuntimeError("a bug")
            case _:
                await self._act_on_the_client(words, parts)

    async def _act_on_the_client(self, words: list[str], parts: int) -> None:
        match words:
            case ["files", path]:
                await self._files(Path(path))
            case ["run"]:
                await self._run()
            case _:
                await self.say(f"echo {parts}")

    async def _tools(self) -> None:
        entries = (
            PlanEntry(text="look", status="completed"),
            PlanEntry(text="change", status="in_progress"),
            PlanEntry(text="dream", status="cancelled"),
        )
        await self.tell(PlanChanged(entries=entries))
        await self.tell(Said(message="m0", role="thought", text="let me see"))
        await self.tell(self.call("c1", "pending"))
        await self.tell(self.call("c1", "running"))
        await self.tell(self.call("c1", "running", output="half"))
        await self.tell(self.call("c1", "completed", output="```\nall", code=0))
        await self.tell(Noticed(text="another model was asked"))
        await self.tell(Retitled(title="Tools", updated_at="2026-01-01T00:00:00Z"))
        await self.tell(UsageChanged(used=5, size=1000, cost_usd=Decimal("0.5")))

    async def _files(self, path: Path) -> None:
        read, write = self.client.files_read, self.client.files_write
        if read is None or write is None:
            await self.say("no files")
            return
        try:
            text = await read(self.id).read(path)
            await write(self.id).write(path, text + "!")
            await self.say(text)
        except OSError as error:
            await self.say(f"{type(error).__name__}: {error}")

    async def _run(self) -> None:
        terminals = self.client.terminals
        if terminals is None:
            await self.say("no terminals")
            return
        try:
            terminal = await terminals(self.id).create("ls", ("-l",), self.cwd, {"A": "b"}, 1000)
            code = await terminal.wait()
            output, _ = await terminal.output()
            await terminal.kill()
            await terminal.release()
            await self.say(f"{terminal.id} {code} {output}")
        except OSError as error:
            await self.say(f"{type(error).__name__}: {error}")


class StandInAgent(CodingAgent):
    """Keeps what it was given, for the test to look at."""

    def __init__(self) -> None:
        self.sessions: dict[str, StandInSession] = {}
        self.kept: dict[str, Path] = {"kept": Path("/"), "long": Path("/")}
        self.servers: list[Sequence[McpServerSpec]] = []
        self.extra: list[Sequence[Path]] = []
        self.opened = 0
        self.ended = False
        self.keyless = False
        self.gate: anyio.Event | None = None
        self.at_gate = anyio.Event()

    @asynccontextmanager
    async def open_agent(self) -> AsyncGenerator[CodingAgent]:
        self.opened += 1
        async with anyio.create_task_group() as tasks:
            await checkpoint()
            try:
                yield self
            finally:
                self.ended = True
                tasks.cancel_scope.cancel()

    async def ready(self) -> Sequence[ModelChoice]:
        if self.keyless:
            raise AuthRequired("no provider has a key: run `go-ent init`")
        return MODELS

    async def new(
        self,
        client: AgentClient,
        cwd: Path,
        *,
        extra: Sequence[Path] = (),
        servers: Sequence[McpServerSpec] = (),
        model: str | None = None,
    ) -> AgentSession:
        await self.ready()
        session = StandInSession(client, f"s{len(self.servers) + 1}", cwd)
        self.sessions[session.id] = session
        self.servers.append(servers)
        self.extra.append(extra)
        await session.tell(Noticed(text="about to begin"))
        if self.gate is not None:
            self.at_gate.set()
            await self.gate.wait()
        if model is not None:
            await session.set_model(model)
        return session

    async def open(
        self,
        client: AgentClient,
        session: str,
        cwd: Path,
        *,
        extra: Sequence[Path] = (),
        servers: Sequence[McpServerSpec] = (),
    ) -> AgentSession:
        if session not in self.sessions and session not in self.kept:
            raise UnknownSession(f"session not found: {session!r}")
        if session not in self.sessions:
            self.sessions[session] = StandInSession(client, session, cwd)
        found = self.sessions[session]
        await found.tell(Noticed(text="back again"))
        return found

    def get(self, session: str) -> AgentSession:
        return self.sessions[session]

    async def list_page(
        self, *, cwd: str | None = None, cursor: str | None = None
    ) -> tuple[Sequence[SessionSummary], str | None]:
        if cursor not in (None, "2"):
            raise RequestError(f"no cursor {cursor!r}")
        name, after = ("first", "2") if cursor is None else ("second", None)
        found = SessionSummary(id=name, cwd=cwd or "/", title=name, updated_at="2026-01-01T00:00Z")
        return [found], after

    async def close(self, session: str) -> None:
        await checkpoint()
        self.sessions[session].closed = True
        self.kept[session] = self.sessions.pop(session).cwd

    async def delete(self, session: str) -> None:
        self.kept.pop(session, None)
