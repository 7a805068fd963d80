"""One conversation with the agent: what its client can ask of it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import anyio

from goent.agent.calling import Calling
from goent.agent.commands import CommandCall, command_in
from goent.agent.compaction import USUAL_WINDOW
from goent.agent.content import Given, Words
from goent.agent.events import AnyAgentEvent, Noticed, Said, StateChanged, StopReason
from goent.agent.instructions import project_instructions, system_prompt
from goent.agent.memory import Memory
from goent.agent.models import AUTO, Chosen, ModelChoice, Models
from goent.agent.permits import MODES, Mode, Permits
from goent.agent.ports import Client, Toolbox
from goent.agent.records import Prompted, Set, Titled, Told, parts_of
from goent.agent.refusing import SessionBusy
from goent.agent.turn import Turn
from goent.agent.voice import Voice
from goent.domain.types import Usage, Value
from goent.llm import talk

TITLE = 80  # characters


class Options(Value, frozen=True, kw_only=True):
    """What can be set for a session, and what it is now. `auto` lets the task decide the model."""

    mode: Mode
    model: str
    models: tuple[ModelChoice, ...]


class TurnEnd(Value, frozen=True, kw_only=True):
    """How a turn ended, and what it took; `text` is all that the agent said in it."""

    stop_reason: StopReason
    text: str
    usage: Usage
    cost_usd: Decimal | None


class AgentSession:
    """Works for one client; a prompt at a time."""

    def __init__(
        self,
        memory: Memory,
        models: Models,
        client: Client,
        toolbox: Toolbox,
        *,
        roots: Sequence[Path],
        patience: float,
    ) -> None:
        self.id = memory.id
        self.cwd = roots[0]
        self._memory = memory
        self._models = models
        self._voice = Voice(memory, client)
        self._tools = toolbox.tools
        self._roots = tuple(roots)
        self._patience = patience
        self._permits = Permits()
        self._model = AUTO
        self._system = ""
        self._said = ""
        self._notices = toolbox.warnings
        self._scope: anyio.CancelScope | None = None
        self._ended = anyio.Event()
        if memory.set:
            self._permits.set_mode(memory.set.mode)
            self._model = memory.set.model

    @property
    def options(self) -> Options:
        return Options(mode=self._permits.mode, model=self._model, models=self._models.choices())

    @property
    def busy(self) -> bool:
        """A turn is under way."""
        return self._scope is not None

    # What the client asks

    async def prompt(self, given: Sequence[Given]) -> TurnEnd:
        """Take a turn; all its events have been told when this returns.

        Raises `SessionBusy` during a turn, and a `WorkerError` if the turn fails.
        """
        if self._scope is not None:
            raise SessionBusy(
                f"session {self.id!r} is at work: wait for the end of its turn, or cancel it"
            )
        before, cost = self._memory.usage, self._memory.cost_usd
        stop: StopReason = "cancelled"
        self._scope, self._ended, self._said = anyio.CancelScope(), anyio.Event(), ""
        try:
            await self._voice.tell(StateChanged(state="running"))
            with self._scope:
                stop = await self._take(tuple(given))
        finally:
            self._scope = None
            self._ended.set()
            with anyio.CancelScope(shield=True):
                await self._voice.tell(StateChanged(state="idle", stop_reason=stop))
        return TurnEnd(
            stop_reason=stop,
            text=self._said,
            usage=self._memory.usage - before,
            cost_usd=_difference(self._memory.cost_usd, cost),
        )

    def cancel(self) -> None:
        """End the running turn, if there is one: its `prompt` returns "cancelled"."""
        if self._scope:
            self._scope.cancel()

    async def ended(self) -> None:
        """Return when no turn is under way."""
        if self._scope:
            await self._ended.wait()

    async def set_mode(self, mode: str) -> None:
        """Raises `RequestError` for a mode that there is not."""
        self._permits.set_mode(mode)
        await self._set()

    async def set_model(self, model: str) -> None:
        """Raises `RequestError` for a model that there is not."""
        self._model = model if model == AUTO else self._models.find(model).provider.name
        await self._set()

    def history(self) -> Iterator[AnyAgentEvent]:
        """All that happened, for a client that loads the session."""
        return self._memory.history()

    async def greet(self) -> None:
        """Tell what a client shows before the first prompt: what is missing, title and usage."""
        for text in self._notices:
            await self._voice.tell(Noticed(text=text))
        await self._voice.greet()

    # A turn

    async def _take(self, given: tuple[Given, ...]) -> StopReason:
        if call := command_in(given):
            await self._obey(call)
            return "end_turn"
        message = self._memory.new_message()
        await self._voice.keep([Prompted(message=message, given=given)])
        if not self._memory.title:
            await self._voice.keep([Titled(title=_title(given))])
        await self._instruct()
        turn = self._turn(await self._chosen(given))
        try:
            return await turn.run()
        finally:
            self._said = turn.text

    def _turn(self, chosen: Chosen) -> Turn:
        self._voice.window = chosen.provider.context_limit or USUAL_WINDOW
        tools = self._tools()
        calling = Calling(
            tools,
            self._permits,
            tell=self._voice.tell,
            ask=self._voice.ask,
            keep=self._voice.keep,
            patience=self._patience,
        )
        offered = [
            talk.Tool(name=tool.name, description=tool.description, schema=tool.schema)
            for tool in tools.values()
        ]
        return Turn(
            self._voice,
            self._models,
            chosen,
            calling,
            system=self._system,
            tools=offered,
        )

    async def _chosen(self, given: Sequence[Given] = ()) -> Chosen:
        if self._model != AUTO:
            return self._models.find(self._model)
        words = "\n".join(p.text for p in parts_of(given) if isinstance(p, talk.Text))
        chosen = await self._models.choose(words, self.cwd)
        told = f"{chosen.provider.opencode_model}: {chosen.reason}"
        await self._voice.keep([Told(text=told)])
        return chosen

    async def _instruct(self) -> None:
        """Have the system prompt, and tell which of the project's own words are not in it."""
        if self._system:
            return
        told, skipped = project_instructions(self.cwd)
        self._system = system_prompt(self.cwd, self._roots[1:], told, now=datetime.now(UTC))
        await self._voice.keep([Told(text=text) for text in skipped])

    async def _set(self) -> None:
        await self._voice.keep([Set(mode=self._permits.mode, model=self._model)])

    # Slash commands

    async def _obey(self, call: CommandCall) -> None:
        self._said = await self._done(call)
        message = f"{self._memory.new_message()}/{call.name}"
        await self._voice.tell(Said(message=message, role="agent", text=self._said))

    async def _done(self, call: CommandCall) -> str:
        match call.name:
            case "compact" if not self._memory.can_shrink:
                return "There is nothing to sum up yet."
            case "compact":
                await self._instruct()
                await self._turn(await self._chosen()).compact()
                return "Summed up."
            case "mode" if call.rest:
                await self.set_mode(call.rest)
            case "model" if call.rest:
                await self.set_model(call.rest)
            case _:
                pass
        return self._reply(call)

    def _reply(self, call: CommandCall) -> str:
        match call.name:
            case "mode":
                return f"The mode is {self._permits.mode} (of {', '.join(MODES)})."
            case "model":
                names = ", ".join(choice.id for choice in self._models.choices())
                return f"The model is {self._model} (of {names})."
            case _:
                usage, cost = self._memory.usage, self._memory.cost_usd
                money = "unknown: a price is missing" if cost is None else f"{cost:.4f} USD"
                return (
                    f"Tokens: {usage.input} in, {usage.output + usage.reasoning} out, "
                    f"{usage.cache_read} read from the cache, {usage.cache_write} written to it. "
                    f"Cost: {money}."
                )


def _title(given: Sequence[Given]) -> str:
    words = " ".join(each.text for each in given if isinstance(each, Words)).split()
    title = " ".join(words) or "Untitled"
    return title if len(title) <= TITLE else f"{title[: TITLE - 1]}…"


def _difference(after: Decimal | None, before: Decimal | None) -> Decimal | None:
    return None if after is None or before is None else after - before
