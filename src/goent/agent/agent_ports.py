"""Defines what the agent needs from outside: its client, its models, its tools, and why it refuses."""

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
    """A turn of the session is under way."""


class AuthRequired(RequestError):
    """There is no key by which a model could be asked; the message says how to give one."""


ModelCallEvent = UsageReported | FailedOver | BudgetWarned | Noticed
OnChunks = Callable[[Sequence[AnswerChunk]], Awaitable[None]]
OnModelCallEvent = Callable[[ModelCallEvent], Awaitable[None]]

AUTO = "auto"


class ModelChoice(Value, frozen=True, kw_only=True):
    """A model that can be chosen; `group` is its backend."""

    id: str
    name: str
    description: str = ""
    group: str = ""


class ChosenModel(Value, frozen=True, kw_only=True):
    """The model to think with, who may stand in for it, and why this one."""

    provider: Provider
    fallbacks: tuple[Provider, ...] = ()
    reason: str = "asked for"


class ModelAccess(Protocol):
    """The way to all models. Which of them are there may change at any time."""

    def choices(self) -> tuple[ModelChoice, ...]: ...

    def find(self, name: str) -> ChosenModel:
        """By a name, a tier or `backend/model`. Raises `RequestError` with what there is."""
        ...

    async def choose(self, task: str, cwd: Path) -> ChosenModel:
        """For a task."""
        ...

    async def stream(
        self,
        session: str,
        chosen: ChosenModel,
        request: ModelRequest,
        take: OnChunks,
        hear: OnModelCallEvent,
    ) -> None:
        """One answer in chunks. Raises a `WorkerError` when nobody could give or finish it."""
        ...


ToolPermission = Literal["edit", "bash", "outside", "mcp"]


class ToolMistake(GoentError):
    """A call that cannot be done as asked; the message is for the model: what, and how instead."""


class PermissionNeed(Value, frozen=True, kw_only=True):
    """What a call must be permitted. `patterns` are the paths or the command that it is about.

    `always` is what a yes for the whole session covers: each a path, a command or a tool, in which
    `*` is any text, and a last ` *` may be missing (`git *` is `git` too). A need that is `exact`
    is covered only by its own words: of a command with `;` or `$(...)` the beginning says nothing.
    One that has a `reason` is asked for that, in every mode.
    """

    permission: ToolPermission
    patterns: tuple[str, ...]
    always: tuple[str, ...] = ()
    exact: bool = False
    reason: str = ""


class ToolQuestion(Value, frozen=True, kw_only=True):
    """May this be done? Put before the call is run."""

    call: str
    tool: str
    kind: ToolKind
    title: str
    need: PermissionNeed
    input: Raw = Raw(b"{}")
    shown: tuple[DisplayPart, ...] = ()
    locations: tuple[FileLocation, ...] = ()


class Rejection(Value, frozen=True, kw_only=True):
    """A no with words for the model."""

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
        """What it has said so far, and its exit code once it has one."""
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
    """Who the agent works for: one connection. What it does not offer is None."""

    @property
    def files_read(self) -> Callable[[str], ClientFiles] | None:
        """By session id; reading through the client."""
        ...

    @property
    def files_write(self) -> Callable[[str], ClientFiles] | None: ...

    @property
    def terminals(self) -> Callable[[str], ClientTerminals] | None: ...

    async def send(self, session: str, event: AnyAgentEvent) -> None:
        """In order. Waits if the client is slow."""
        ...

    async def ask(
        self, session: str, question: ToolQuestion
    ) -> PermissionAnswer | Rejection | None:
        """None if nobody answered: the turn was cancelled, or the client is gone."""
        ...


class ToolIntent(Value, frozen=True, kw_only=True):
    """What a call is about to do, for people. `alone`: nothing may run beside it."""

    kind: ToolKind
    title: str
    need: PermissionNeed | None = None
    runs_alone: bool = True
    shown: tuple[DisplayPart, ...] = ()
    locations: tuple[FileLocation, ...] = ()


class ToolOutcome(Value, frozen=True, kw_only=True):
    """What came of a call: `text` for the model, `shown` for people."""

    text: str
    failed: bool = False
    images: tuple[MessageImage, ...] = ()
    shown: tuple[DisplayPart, ...] = ()
    locations: tuple[FileLocation, ...] = ()
    plan: tuple[PlanEntry, ...] | None = None
    exit: int | None = None


class ToolProgress(Value, frozen=True, kw_only=True):
    """What a running call has to show so far; replaces what it showed before."""

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
    """Something that the model can use. `schema` is the JSON schema of its arguments."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> Raw: ...

    async def prepare(self, arguments: bytes) -> ToolInvocation:
        """Look at what is asked, and change nothing. `arguments` is JSON as the model wrote it.

        Raises `ToolMistake` if they are not such as the tool takes.
        """
        ...


class CommandLimits(Protocol):
    """How the commands of a session are confined."""

    @property
    def confines(self) -> bool: ...

    @property
    def variables(self) -> Mapping[str, str]:
        """What is different in the environment of a confined command."""
        ...

    async def options(self) -> tuple[str, ...]:
        """For the sandbox's launcher; none if commands are not confined after all."""
        ...


class ToolContext(Value, frozen=True, kw_only=True):
    """What a session's tools work with. `roots` are the session's directories, `cwd` the first.

    `environ` has no keys in it. `reading`, `writing` and `terminals` are the client's, if it offers
    them. Commands may write below the roots, temporary folders and `writable`; `owner` marks them.
    `sandbox` confines them; None: they are free.
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
    """The tools of a session, and what its user should know of those that are not there.

    `tools` is asked for each turn: those of a server that starts slowly come later.
    """

    tools: Callable[[], Mapping[str, AgentTool]]
    warnings: tuple[str, ...] = ()
