"""One conversation with the agent: its system prompt, slash commands, settings and turns."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from platform import system

import anyio

from goent.agent.agent_events import (
    AnyAgentEvent,
    Noticed,
    PromptPart,
    Said,
    StateChanged,
    StopReason,
    TextPart,
)
from goent.agent.agent_ports import (
    AUTO,
    AgentClient,
    ChosenModel,
    ModelAccess,
    ModelChoice,
    SessionBusy,
    Toolbox,
)
from goent.agent.conversation_turn import ConversationTurn
from goent.agent.session_records import (
    DEFAULT_CONTEXT_WINDOW,
    Prompted,
    SessionMemory,
    SessionReporter,
    Set,
    Titled,
    Told,
    prompt_text,
)
from goent.agent.tool_runner import PERMISSION_MODES, PermissionMode, SessionPermissions, ToolRunner
from goent.config.project_instructions import find_instructions, git_top
from goent.domain.types import Usage, Value
from goent.providers import model_messages
from goent.system.plain_files import read_beginning


class SlashCommand(Value, frozen=True, kw_only=True):
    """A slash command; `hint` is what may follow it."""

    name: str
    description: str
    hint: str = ""


class SlashCommandCall(Value, frozen=True, kw_only=True):
    """A command that a user typed, and what followed it."""

    name: str
    rest: str


SLASH_COMMANDS = (
    SlashCommand(name="compact", description="Summarize the conversation to make room"),
    SlashCommand(name="cost", description="Show tokens and cost of this session"),
    SlashCommand(name="mode", description="Show or set the mode", hint="ask, accept-edits or plan"),
    SlashCommand(name="model", description="Show or set the model", hint="auto, or a model"),
)


def parse_slash_command(given: Sequence[PromptPart]) -> SlashCommandCall | None:
    """The command, if the prompt is a known one; anything else is for the model."""
    if len(given) != 1 or not isinstance(given[0], TextPart):
        return None
    name, _, rest = given[0].text.strip().partition(" ")
    known = any(name == f"/{command.name}" for command in SLASH_COMMANDS)
    return SlashCommandCall(name=name[1:], rest=rest.strip()) if known else None


MAX_INSTRUCTION_CHARS = 40_000  # of all files together

BASE_PROMPT = """\
You are go-ent's coding agent. You work in a directory of the user with the tools you are given.

Work like a careful engineer:
- Look before you change: read the surrounding code, search for uses, follow the existing style.
- Do all of what was asked, and nothing beyond it. Ask only if the answer changes what you do.
- For work of several steps keep a todo list with TodoWrite, and keep it up to date.
- Make calls that do not depend on each other in parallel.
- Prefer Edit to Write for files that exist. Read a file before you change it.
- After a change, run what proves it (tests, type checks, the program), if there is anything.
- A refused permission is the user's decision: do not try to reach the same in another way.
- Never commit, push or publish unless you were asked to.

Be honest: say what you did, what you checked, and what you did not. Never claim that something \
works if you have not seen it work. Answer briefly, in the user's language, without praise."""


def system_prompt(cwd: Path, extra: Sequence[Path], instructions: str, *, now: datetime) -> str:
    """The same for every call of a session, so that providers can cache it."""
    others = f"\nOther directories: {', '.join(map(str, extra))}" if extra else ""
    place = (
        f"Working directory: {cwd}{others}\n"
        f"System: {system()}\nDate: {now.astimezone(UTC):%Y-%m-%d}"
    )
    project = f"\n\nThe project's own instructions:\n\n{instructions}" if instructions else ""
    return f"{BASE_PROMPT}\n\n{place}{project}"


def project_instructions(cwd: Path) -> tuple[str, tuple[str, ...]]:
    """The instruction files from the top of the checkout down, and why others are not read.

    The nearest comes last, and takes precedence.
    """
    folders = [cwd, *cwd.parents]
    below = folders[: folders.index(git_top(cwd)) + 1]
    found = find_instructions(below[::-1])
    texts = filter(None, map(_read_instructions, found.files))
    return "\n\n".join(texts)[:MAX_INSTRUCTION_CHARS], found.skipped


def _read_instructions(path: Path) -> str:
    try:
        data = read_beginning(path, 4 * MAX_INSTRUCTION_CHARS)
    except OSError:
        return ""
    text = data.decode(errors="replace")[:MAX_INSTRUCTION_CHARS].strip()
    return f"<{path.name} in {path.parent}>\n{text}\n</{path.name}>" if text else ""


MAX_TITLE_CHARS = 80


class SessionOptions(Value, frozen=True, kw_only=True):
    """The settings of a session, and the models to choose from. `auto` chooses by task."""

    mode: PermissionMode
    model: str
    models: tuple[ModelChoice, ...]


class TurnEnd(Value, frozen=True, kw_only=True):
    """The result of a turn; `text` is all text of the agent in it."""

    stop_reason: StopReason
    text: str
    usage: Usage
    cost_usd: Decimal | None


class AgentSession:
    """A conversation with one client, one prompt at a time."""

    def __init__(
        self,
        memory: SessionMemory,
        models: ModelAccess,
        client: AgentClient,
        toolbox: Toolbox,
        *,
        roots: Sequence[Path],
        patience: float,
    ) -> None:
        self.id = memory.id
        self.cwd = roots[0]
        self._memory = memory
        self._models = models
        self._reporter = SessionReporter(memory, client)
        self._tools = toolbox.tools
        self._roots = tuple(roots)
        self._patience = patience
        self._permissions = SessionPermissions()
        self._model = AUTO
        self._system = ""
        self._last_text = ""
        self._notices = toolbox.warnings
        self._scope: anyio.CancelScope | None = None
        self._ended = anyio.Event()
        if memory.settings:
            self._permissions.set_mode(memory.settings.mode)
            self._model = memory.settings.model

    @property
    def options(self) -> SessionOptions:
        return SessionOptions(
            mode=self._permissions.mode, model=self._model, models=self._models.choices()
        )

    @property
    def busy(self) -> bool:
        return self._scope is not None

    async def prompt(self, given: Sequence[PromptPart]) -> TurnEnd:
        """Takes a turn; all its events are sent when this returns.

        Raises `SessionBusy` during a turn, and a `WorkerError` if the turn fails.
        """
        if self._scope is not None:
            raise SessionBusy(
                f"session {self.id!r} is busy: wait for the end of its turn, or cancel it"
            )
        before, cost = self._memory.usage, self._memory.cost_usd
        stop: StopReason = "cancelled"
        self._scope, self._ended, self._last_text = anyio.CancelScope(), anyio.Event(), ""
        try:
            await self._reporter.send(StateChanged(state="running"))
            with self._scope:
                stop = await self._run_turn(tuple(given))
        finally:
            self._scope = None
            self._ended.set()
            with anyio.CancelScope(shield=True):
                await self._reporter.send(StateChanged(state="idle", stop_reason=stop))
        return TurnEnd(
            stop_reason=stop,
            text=self._last_text,
            usage=self._memory.usage - before,
            cost_usd=_difference(self._memory.cost_usd, cost),
        )

    def cancel(self) -> None:
        """Ends the running turn, if there is one: its `prompt` returns "cancelled"."""
        if self._scope:
            self._scope.cancel()

    async def ended(self) -> None:
        """Waits until no turn is running."""
        if self._scope:
            await self._ended.wait()

    async def set_mode(self, mode: str) -> None:
        """Raises `RequestError` for an unknown mode."""
        self._permissions.set_mode(mode)
        await self._keep_settings()

    async def set_model(self, model: str) -> None:
        """Raises `RequestError` for an unknown model."""
        self._model = model if model == AUTO else self._models.find(model).provider.name
        await self._keep_settings()

    def history(self) -> Iterator[AnyAgentEvent]:
        """All past events, for a client that loads the session."""
        return self._memory.history()

    async def greet(self) -> None:
        """Sends what a client shows before the first prompt: warnings, title and usage."""
        for text in self._notices:
            await self._reporter.send(Noticed(text=text))
        await self._reporter.greet()

    # A turn

    async def _run_turn(self, given: tuple[PromptPart, ...]) -> StopReason:
        if call := parse_slash_command(given):
            await self._run_command(call)
            return "end_turn"
        message = self._memory.new_message()
        await self._reporter.keep([Prompted(message=message, given=given)])
        if not self._memory.title:
            await self._reporter.keep([Titled(title=_title(given))])
        await self._load_instructions()
        turn = self._turn(await self._choose_model(given))
        try:
            return await turn.run()
        finally:
            self._last_text = turn.text

    def _turn(self, chosen: ChosenModel) -> ConversationTurn:
        self._reporter.window = chosen.provider.context_limit or DEFAULT_CONTEXT_WINDOW
        tools = self._tools()
        runner = ToolRunner(tools, self._permissions, self._reporter, patience=self._patience)
        definitions = [
            model_messages.ToolDefinition(
                name=tool.name, description=tool.description, schema=tool.schema
            )
            for tool in tools.values()
        ]
        return ConversationTurn(
            self._reporter, self._models, chosen, runner, system=self._system, tools=definitions
        )

    async def _choose_model(self, given: Sequence[PromptPart] = ()) -> ChosenModel:
        if self._model != AUTO:
            return self._models.find(self._model)
        chosen = await self._models.choose(prompt_text(given), self.cwd)
        text = f"{chosen.provider.opencode_model}: {chosen.reason}"
        await self._reporter.keep([Told(text=text)])
        return chosen

    async def _load_instructions(self) -> None:
        """Builds the system prompt once, and reports which instruction files are not in it."""
        if self._system:
            return
        project, skipped = project_instructions(self.cwd)
        self._system = system_prompt(self.cwd, self._roots[1:], project, now=datetime.now(UTC))
        await self._reporter.keep([Told(text=text) for text in skipped])

    async def _keep_settings(self) -> None:
        await self._reporter.keep([Set(mode=self._permissions.mode, model=self._model)])

    # Slash commands

    async def _run_command(self, call: SlashCommandCall) -> None:
        self._last_text = await self._execute_command(call)
        message = f"{self._memory.new_message()}/{call.name}"
        await self._reporter.send(Said(message=message, role="agent", text=self._last_text))

    async def _execute_command(self, call: SlashCommandCall) -> str:
        match call.name:
            case "compact" if not self._memory.can_compact:
                return "There is nothing to summarize yet."
            case "compact":
                await self._load_instructions()
                await self._turn(await self._choose_model()).compact()
                return "Summarized."
            case "mode" if call.rest:
                await self.set_mode(call.rest)
            case "model" if call.rest:
                await self.set_model(call.rest)
            case _:
                pass
        return self._reply(call)

    def _reply(self, call: SlashCommandCall) -> str:
        match call.name:
            case "mode":
                return f"The mode is {self._permissions.mode} (of {', '.join(PERMISSION_MODES)})."
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


def _title(given: Sequence[PromptPart]) -> str:
    words = " ".join(each.text for each in given if isinstance(each, TextPart)).split()
    title = " ".join(words) or "Untitled"
    return title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 1]}…"


def _difference(after: Decimal | None, before: Decimal | None) -> Decimal | None:
    return None if after is None or before is None else after - before
