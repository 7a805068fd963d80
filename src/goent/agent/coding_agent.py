"""Opens, resumes, lists and closes all sessions of one agent process."""

import logging
import secrets
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import anyio
from anyio.abc import TaskGroup, TaskStatus
from msgspec.structs import replace

from goent.agent.agent_ports import (
    AUTO,
    AgentClient,
    AgentTool,
    AuthRequired,
    CommandLimits,
    McpServerSpec,
    ModelAccess,
    ModelChoice,
    Toolbox,
    ToolContext,
    UnknownSession,
)
from goent.agent.agent_session import AgentSession
from goent.agent.session_records import SessionMemory, Set
from goent.domain.errors import EnvironmentTrouble, RequestError
from goent.domain.local_servers import ModelServers, NoModelServers
from goent.domain.types import Value
from goent.store.session_store import PAGE, SqliteSessions

CLOSE_S = 10.0  # for a cancelled turn to end

log = logging.getLogger(__name__)

OpenCommandLimits = Callable[[tuple[Path, ...]], AbstractAsyncContextManager[CommandLimits]]
OpenTools = Callable[[ToolContext, Sequence[McpServerSpec]], AbstractAsyncContextManager[Toolbox]]


class SessionSummary(Value, frozen=True, kw_only=True):
    """A session as a list shows it; `updated_at` is ISO 8601, UTC."""

    id: str
    cwd: str
    title: str
    updated_at: str


class SessionResources(Value, frozen=True, kw_only=True):
    """What a directory offers to its sessions. `environ` contains no keys.

    `sandbox` opens the limits of a session's commands, for its directories.
    `patience` is how long a question waits for its answer, in seconds. `notices` are for the user.
    `servers` list their models before a session begins.
    """

    models: ModelAccess
    environ: Mapping[str, str]
    patience: float = 300.0
    writable: tuple[Path, ...] = ()
    sandbox: OpenCommandLimits | None = None
    notices: tuple[str, ...] = ()
    servers: ModelServers = NoModelServers()


class AgentSetup(Value, frozen=True, kw_only=True):
    """What all sessions have in common: `model` and `mode` are the defaults of a new one.

    `allowed` are the tools that it may use, without those in `refused`; None: all others.
    """

    resources_at: Callable[[Path], SessionResources]
    open_tools: OpenTools
    owner: str
    model: str = AUTO
    mode: str = "ask"
    allowed: frozenset[str] | None = None
    refused: frozenset[str] = frozenset()


class _OpenSession:
    """A session that is open in this process."""

    def __init__(self, session: AgentSession) -> None:
        self.session = session
        self.closing = anyio.Event()
        self.closed = anyio.Event()


class CodingAgent:
    """All sessions of one process. They end with it, and stay stored for the next."""

    def __init__(self, tasks: TaskGroup, store: SqliteSessions, setup: AgentSetup) -> None:
        self._tasks = tasks
        self._store = store
        self._setup = setup
        self._open: dict[str, _OpenSession] = {}

    @classmethod
    @asynccontextmanager
    async def running(
        cls, store: SqliteSessions, setup: AgentSetup
    ) -> "AsyncGenerator[CodingAgent]":
        """Leaving cancels all turns, and ends everything that the sessions have started."""
        async with anyio.create_task_group() as tasks:
            agent = cls(tasks, store, setup)
            try:
                yield agent
            finally:
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as closing:
                        for name in tuple(agent._open):
                            closing.start_soon(agent._close_quietly, name)
                tasks.cancel_scope.cancel()

    async def ready(self) -> Sequence[ModelChoice]:
        """The models for a session in the current directory. Raises `AuthRequired` if there is none."""
        return (await self._usable_resources(Path.cwd())).models.choices()

    async def new(
        self,
        client: AgentClient,
        cwd: Path,
        *,
        extra: Sequence[Path] = (),
        servers: Sequence[McpServerSpec] = (),
        model: str | None = None,
    ) -> AgentSession:
        resources = await self._usable_resources(cwd)
        wanted = model or self._setup.model
        chosen = wanted if wanted == AUTO else resources.models.find(wanted).provider.name
        memory = SessionMemory(self._store, f"agent-{secrets.token_hex(6)}", str(cwd))
        with suppress(EnvironmentTrouble):  # retried, and reported, with the first prompt
            await memory.keep([Set(mode=self._setup.mode, model=chosen)])
        return await self._start_session(client, memory, (cwd, *extra), servers)

    async def open(
        self,
        client: AgentClient,
        session: str,
        cwd: Path,
        *,
        extra: Sequence[Path] = (),
        servers: Sequence[McpServerSpec] = (),
    ) -> AgentSession:
        """Opens a stored session, also one of this process. Raises `UnknownSession`."""
        if session in self._open:
            await self.close(session)
        found = await self._store.read(session)
        if found is None:
            raise UnknownSession(f"unknown session {session!r}: see session/list")
        _, records = found
        memory = SessionMemory(self._store, session, str(cwd), records=records)
        return await self._start_session(client, memory, (cwd, *extra), servers)

    def get(self, session: str) -> AgentSession:
        """A session that is open in this process. Raises `UnknownSession`."""
        found = self._open.get(session)
        if found is None:
            raise UnknownSession(f"session {session!r} is not open: load it, or start a new one")
        return found.session

    async def list_page(
        self, *, cwd: str | None = None, cursor: str | None = None
    ) -> tuple[Sequence[SessionSummary], str | None]:
        """A page of sessions, newest first, and the cursor of the next page."""
        if cursor is not None and not cursor.isdecimal():
            raise RequestError(f"invalid cursor {cursor!r}: use one that session/list returned")
        after = int(cursor or 0)
        stored = await self._store.listed(cwd=cwd, after=after)
        page = [
            SessionSummary(
                id=each.id,
                cwd=each.cwd,
                title=each.title,
                updated_at=datetime.fromtimestamp(each.updated_at, UTC).isoformat(),
            )
            for each in stored
        ]
        return page, str(after + PAGE) if len(stored) == PAGE else None

    async def close(self, session: str) -> None:
        """Ends its turn and everything it has running; it stays stored. Raises `UnknownSession`."""
        self.get(session).cancel()
        closing = self._open[session]
        with anyio.move_on_after(CLOSE_S):
            await closing.session.ended()
        closing.closing.set()
        with anyio.move_on_after(CLOSE_S):
            await closing.closed.wait()

    async def delete(self, session: str) -> None:
        """Closes the session and deletes its records. An unknown one is no error."""
        if session in self._open:
            await self.close(session)
        await self._store.delete(session)

    async def _close_quietly(self, session: str) -> None:
        with suppress(UnknownSession):  # it was closed elsewhere in this moment
            await self.close(session)

    async def _start_session(
        self,
        client: AgentClient,
        memory: SessionMemory,
        roots: tuple[Path, ...],
        servers: Sequence[McpServerSpec],
    ) -> AgentSession:
        opened = await self._tasks.start(self._run_session, client, memory, roots, servers)
        assert isinstance(opened, AgentSession | Exception)
        if isinstance(opened, Exception):
            raise opened
        return opened

    async def _run_session(
        self,
        client: AgentClient,
        memory: SessionMemory,
        roots: tuple[Path, ...],
        servers: Sequence[McpServerSpec],
        *,
        task_status: TaskStatus[AgentSession | Exception],
    ) -> None:
        """One task for the session's whole life, as its contexts must be left where they were entered."""
        opened: _OpenSession | None = None
        try:
            async with AsyncExitStack() as stack:
                try:
                    session = await self._create_session(stack, client, memory, roots, servers)
                except Exception as error:  # noqa: BLE001 (raised to the caller by `_start_session`)
                    task_status.started(error)
                    return
                opened = self._open[memory.id] = _OpenSession(session)
                task_status.started(session)
                await opened.closing.wait()
        except Exception:  # other sessions continue
            log.exception("session %r did not end cleanly", memory.id)
        finally:
            self._open.pop(memory.id, None)
            if opened:
                opened.closed.set()

    async def _create_session(
        self,
        stack: AsyncExitStack,
        client: AgentClient,
        memory: SessionMemory,
        roots: tuple[Path, ...],
        servers: Sequence[McpServerSpec],
    ) -> AgentSession:
        resources = self._setup.resources_at(roots[0])
        await resources.servers.refresh()
        sandbox = resources.sandbox
        context = ToolContext(
            session=memory.id,
            cwd=roots[0],
            roots=roots,
            environ=resources.environ,
            file_reader=client.files_read(memory.id) if client.files_read else None,
            file_writer=client.files_write(memory.id) if client.files_write else None,
            terminals=client.terminals(memory.id) if client.terminals else None,
            writable=resources.writable,
            sandbox=await stack.enter_async_context(sandbox(roots)) if sandbox else None,
            owner=self._setup.owner,
        )
        toolbox = await stack.enter_async_context(self._setup.open_tools(context, servers))
        allowed = replace(
            toolbox,
            tools=lambda: self._allowed(toolbox.tools()),
            warnings=(*resources.notices, *toolbox.warnings),
        )
        return AgentSession(
            memory, resources.models, client, allowed, roots=roots, patience=resources.patience
        )

    async def _usable_resources(self, cwd: Path) -> SessionResources:
        resources = self._setup.resources_at(cwd)
        await resources.servers.refresh()
        if not resources.models.choices():
            raise AuthRequired(
                "no usable model: set a key such as ANTHROPIC_API_KEY in go-ent's environment, or run "
                "`go-ent init` and fill in .goent/providers.yaml; `go-ent doctor` shows what is missing"
            )
        return resources

    def _allowed(self, tools: Mapping[str, AgentTool]) -> Mapping[str, AgentTool]:
        allowed, refused = self._setup.allowed, self._setup.refused
        kept = (tools.keys() if allowed is None else tools.keys() & allowed) - refused
        return {name: tool for name, tool in tools.items() if name in kept}
