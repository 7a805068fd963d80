"""Defines the agent's ports: its client, its models, its tools, and its errors."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Raw

from goent.agent.agent_events import AnyAgentEvent, DisplayPart, FileLocation, ToolKind
from goent.domain.errors import GoentError, RequestError
from goent.domain.events import BudgetWarned, FailedOver, Noticed, UsageReported
from goent.domain.types import PermissionAnswer, PlanEntry, Provider, Value
from goent.providers.model_messages import AnswerChunk, MessageImage, ModelRequest


class UnknownSession(RequestError):
    """No session has that id."""


class SessionBusy(RequestError):
    """A turn of the session is running."""


class AuthRequired(RequestError):
    """No model has a key; the message says how to provide one."""


ModelCallEvent = UsageReported | FailedOver | BudgetWarned | Noticed
OnChunks = Callable[[Sequence[AnswerChunk]], Awaitable[None]]
OnModelCallEvent = Callable[[ModelCallEvent], Awaitable[None]]

AUTO = "auto"


class ModelChoice(Value, frozen=True, kw_only=True):
    """A model to choose; `group` is its backend."""

    id: str
    name: str
    description: str = ""
    group: str = ""


class ChosenModel(Value, frozen=True, kw_only=True):
    """The model of a turn, its fallbacks, and why it was chosen."""

    provider: Provider
    fallbacks: tuple[Provider, ...] = ()
    reason: str = "asked for"


class ModelAccess(Protocol):
    """Access to all models. Which are available may change at any time."""

    def choices(self) -> tuple[ModelChoice, ...]: ...

    def find(self, name: str) -> ChosenModel:
        """By a name, a tier or `backend/model`. Raises `RequestError` with the choices."""
        ...

    async def choose(self, task: str, cwd: Path) -> ChosenModel: ...

    async def stream(
        self,
        session: str,
        chosen: ChosenModel,
        request: ModelRequest,
        take: OnChunks,
        hear: OnModelCallEvent,
    ) -> None:
        """Streams one answer. Raises a `WorkerError` when no provider could complete it."""
        ...


ToolPermission = Literal["edit", "bash", "outside", "mcp"]


class ToolMistake(GoentError):
    """A call that cannot be done as requested; the message tells the model why, and what to do."""


class PermissionNeed(Value, frozen=True, kw_only=True):
    """The permission that a call needs. `patterns` are its paths or its command.

    `always` is what "allow for this session" covers: paths, commands or tools, in which `*` is any
    text, and a final ` *` may be missing (`git *` matches `git`). An `exact` need is covered only
    by the same text: the beginning of a command with `;` or `$(...)` says nothing about the rest.
    A need with a `reason` is asked in every mode.
    """

    permission: ToolPermission
    patterns: tuple[str, ...]
    always: tuple[str, ...] = ()
    exact: bool = False
    reason: str = ""


class ToolQuestion(Value, frozen=True, kw_only=True):
    """A permission request, asked before the call runs."""

    call: str
    tool: str
    kind: ToolKind
    title: str
    need: PermissionNeed
    input: Raw = Raw(b"{}")
    shown: tuple[DisplayPart, ...] = ()
    locations: tuple[FileLocation, ...] = ()


class Rejection(Value, frozen=True, kw_only=True):
    """A rejection with a message for the model."""

    message: str


class ClientFiles(Protocol):
    """Files as the client's editor has them, unsaved changes included. Raises `OSError`."""

    async def read(self, path: Path) -> str: ...

    async def write(self, path: Path, text: str) -> None: ...


class ClientTerminal(Protocol):
    """A command that runs at the client."""

    @property
    def id(self) -> str: ...

    async def output(self) -> tuple[str, int | None]:
        """Its output so far, and its exit code once it has one."""
        ...

    async def wait(self) -> int | None: ...

    async def kill(self) -> None: ...

    async def release(self) -> None: ...


class ClientTerminals(Protocol):
    """Terminals that the client shows to its user."""

    async def create(
        self,
        command: str,
        arguments: tuple[str, ...],
        cwd: Path,
        env: Mapping[str, str],
        limit: int,
    ) -> ClientTerminal: ...


class AgentClient(Protocol):
    """The agent's client: one connection. What it does not offer is None; the rest is by session id."""

    @property
    def files_read(self) -> Callable[[str], ClientFiles] | None: ...

    @property
    def files_write(self) -> Callable[[str], ClientFiles] | None: ...

    @property
    def terminals(self) -> Callable[[str], ClientTerminals] | None: ...

    async def send(self, session: str, event: AnyAgentEvent) -> None:
        """Sends events in order; waits if the client is slow."""
        ...

    async def ask(
        self, session: str, question: ToolQuestion
    ) -> PermissionAnswer | Rejection | None:
        """None without an answer: the turn was cancelled, or the client is gone."""
        ...


class ToolIntent(Value, frozen=True, kw_only=True):
    """What a call is about to do, for people. `runs_alone`: not in parallel with others."""

    kind: ToolKind
    title: str
    need: PermissionNeed | None = None
    runs_alone: bool = True
    shown: tuple[DisplayPart, ...] = ()
    locations: tuple[FileLocation, ...] = ()


class ToolOutcome(Value, frozen=True, kw_only=True):
    """The result of a call: `text` for the model, `shown` for people."""

    text: str
    failed: bool = False
    images: tuple[MessageImage, ...] = ()
    shown: tuple[DisplayPart, ...] = ()
    locations: tuple[FileLocation, ...] = ()
    plan: tuple[PlanEntry, ...] | None = None
    exit: int | None = None


class ToolProgress(Value, frozen=True, kw_only=True):
    """The state of a running call, for people; replaces what it showed before."""

    shown: tuple[DisplayPart, ...] = ()
    output: str = ""


OnToolProgress = Callable[[ToolProgress], Awaitable[None]]


class ToolInvocation:
    """A call with valid arguments. Cancelling `run` leaves nothing running."""

    def __init__(
        self, intent: ToolIntent, work: Callable[[OnToolProgress], Awaitable[ToolOutcome]]
    ) -> None:
        self.intent = intent
        self._work = work

    async def run(self, report: OnToolProgress) -> ToolOutcome:
        """Raises `ToolMistake` for what the model can correct."""
        try:
            return await self._work(report)
        except OSError as error:
            raise ToolMistake(f"the system refuses: {error}") from None


class AgentTool(Protocol):
    """A tool for the model. `schema` is the JSON schema of its arguments."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> Raw: ...

    async def prepare(self, arguments: bytes) -> ToolInvocation:
        """Checks the arguments, JSON as the model wrote it, and changes nothing.

        Raises `ToolMistake` for invalid ones.
        """
        ...


class CommandLimits(Protocol):
    """The confinement of a session's commands."""

    @property
    def confines(self) -> bool: ...

    @property
    def variables(self) -> Mapping[str, str]:
        """Additional environment variables of a confined command."""
        ...

    async def options(self) -> tuple[str, ...]:
        """For the sandbox's launcher; empty if commands are not confined after all."""
        ...


class ToolContext(Value, frozen=True, kw_only=True):
    """The surroundings of a session's tools. `roots` are its directories, `cwd` the first.

    `environ` contains no keys. `file_reader`, `file_writer` and `terminals` are the client's, if
    it offers them. Commands may write below the roots, temporary folders and `writable`; they
    carry the mark of `owner`. `sandbox` confines them; None: they are not confined.
    """

    session: str
    cwd: Path
    roots: tuple[Path, ...]
    environ: Mapping[str, str]
    file_reader: ClientFiles | None = None
    file_writer: ClientFiles | None = None
    terminals: ClientTerminals | None = None
    writable: tuple[Path, ...] = ()
    sandbox: CommandLimits | None = None
    owner: str


class McpServerSpec(Value, frozen=True, kw_only=True):
    """An MCP server that the client names: a command, or a `url`."""

    name: str
    command: str = ""
    arguments: tuple[str, ...] = ()
    environ: Mapping[str, str] = {}
    url: str = ""
    headers: Mapping[str, str] = {}


class Toolbox(Value, frozen=True, kw_only=True):
    """The tools of a session, and warnings about missing ones.

    `tools` is called for each turn, as a slow MCP server adds its tools later.
    """

    tools: Callable[[], Mapping[str, AgentTool]]
    warnings: tuple[str, ...] = ()
