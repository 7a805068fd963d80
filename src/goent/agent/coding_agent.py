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

CLOSE_S = 10.0  # for a turn to end that was cancelled

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
    """What a session has where it works. `environ` has no keys in it.

    `sandbox` opens the limits of a session's commands, for its directories.
    `patience` is how long a question waits for its answer, in seconds. `notices` are for the user.
    `servers` are asked for their models before a session begins.
    """

    models: ModelAccess
    environ: Mapping[str, str]
    patience: float = 300.0
    writable: tuple[Path, ...] = ()
    sandbox: OpenCommandLimits | None = None
    notices: tuple[str, ...] = ()
    servers: ModelServers = NoModelServers()


class AgentSetup(Value, frozen=True, kw_only=True):
    """What all sessions have in common: `model` and `mode` are what a new one begins with.

    `allowed` are the names of the tools that it may use; None: all but those that are `refused`.
    """

    resources_at: Callable[[Path], SessionResources]
    open_tools: OpenTools
    owner: str
    model: str = AUTO
    mode: str = "ask"
    allowed: frozenset[str] | None = None
    refused: frozenset[str] = frozenset()


class _OpenSession:
    """A session that lives in this process, and how it is told to end."""

    def __init__(self, session: AgentSession) -> None:
        self.session = session
        self.closing = anyio.Event()
        self.closed = anyio.Event()


class CodingAgent:
    """All sessions of one process. They end with it, and are kept for the next."""

    def __init__(self, tasks: TaskGroup, shelf: SqliteSessions, around: AgentSetup) -> None:
        self._tasks = tasks
        self._store = shelf
        self._setup = around
        self._open: dict[str, _OpenSession] = {}

    @classmethod
    @asynccontextmanager
    async def running(
        cls, shelf: SqliteSessions, around: AgentSetup
    ) -> "AsyncGenerator[CodingAgent]":
        """On leaving, turns are cancelled, and what the sessions have started is ended."""
        async with anyio.create_task_group() as tasks:
            agent = cls(tasks, shelf, around)
            try:
                yield agent
            finally:
                with anyio.CancelScope(shield=True):
                    async with anyio.create_task_group() as closing:
                        for name in tuple(agent._open):
                            closing.start_soon(agent._close_quietly, name)
                tasks.cancel_scope.cancel()

    async def ready(self) -> Sequence[ModelChoice]:
        """What a session, begun where we are, could ask. Raises `AuthRequired` if there is nothing."""
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
        place = await self._usable_resources(cwd)
        wanted = model or self._setup.model
        chosen = wanted if wanted == AUTO else place.models.find(wanted).provider.name
        memory = SessionMemory(self._store, f"agent-{secrets.token_hex(6)}", str(cwd))
        with suppress(EnvironmentTrouble):  # it is kept, or complained of, with the first prompt
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
        """A session that was kept, also one of this process. Raises `UnknownSession`."""
        if session in self._open:
            await self.close(session)
        found = await self._store.read(session)
        if found is None:
            raise UnknownSession(f"there is no session {session!r}: session/list names them")
        _, records = found
        memory = SessionMemory(self._store, session, str(cwd), records=records)
        return await self._start_session(client, memory, (cwd, *extra), servers)

    def get(self, session: str) -> AgentSession:
        """One that is open in this process. Raises `UnknownSession`."""
        found = self._open.get(session)
        if found is None:
            raise UnknownSession(
                f"no session {session!r} is open here: begin one, or load it if it was kept"
            )
        return found.session

    async def list_page(
        self, *, cwd: str | None = None, cursor: str | None = None
    ) -> tuple[Sequence[SessionSummary], str | None]:
        """The newest first, a page of them, and where the next page begins."""
        after = _page_offset(cursor)
        kept = await self._store.listed(cwd=cwd, after=after)
        found = [
            SessionSummary(
                id=each.id,
                cwd=each.cwd,
                title=each.title,
                updated_at=datetime.fromtimestamp(each.updated_at, UTC).isoformat(),
            )
            for each in kept
        ]
        return found, str(after + PAGE) if len(kept) == PAGE else None

    async def close(self, session: str) -> None:
        """End its turn and what it has running. It is kept. Raises `UnknownSession`."""
        self.get(session).cancel()
        open_one = self._open[session]
        with anyio.move_on_after(CLOSE_S):
            await open_one.session.ended()
        open_one.closing.set()
        with anyio.move_on_after(CLOSE_S):
            await open_one.closed.wait()

    async def _close_quietly(self, session: str) -> None:
        with suppress(UnknownSession):  # somebody else has closed it in this moment
            await self.close(session)

    async def delete(self, session: str) -> None:
        """Close it and forget it. An unknown one is no error."""
        if session in self._open:
            await self.close(session)
        await self._store.delete(session)

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
        """What a session has running is entered and left in one task: this."""
        living: _OpenSession | None = None
        try:
            async with AsyncExitStack() as held:
                try:
                    session = await self._create_session(held, client, memory, roots, servers)
                except Exception as error:  # noqa: BLE001 (whoever asked for the session is told)
                    task_status.started(error)
                    return
                living = self._open[memory.id] = _OpenSession(session)
                task_status.started(session)
                await living.closing.wait()
        except Exception:  # the other sessions go on
            log.exception("session %r did not end as it should", memory.id)
        finally:
            self._open.pop(memory.id, None)
            if living:
                living.closed.set()

    async def _create_session(
        self,
        held: AsyncExitStack,
        client: AgentClient,
        memory: SessionMemory,
        roots: tuple[Path, ...],
        servers: Sequence[McpServerSpec],
    ) -> AgentSession:
        place = self._setup.resources_at(roots[0])
        await place.servers.refresh()
        limits = await held.enter_async_context(place.sandbox(roots)) if place.sandbox else None
        desk = replace(self._tool_context(client, memory.id, roots, place), sandbox=limits)
        toolbox = await held.enter_async_context(self._setup.open_tools(desk, servers))
        return AgentSession(
            memory,
            place.models,
            client,
            replace(
                toolbox,
                tools=lambda: self._allowed(toolbox.tools()),
                warnings=(*place.notices, *toolbox.warnings),
            ),
            roots=roots,
            patience=place.patience,
        )

    async def _usable_resources(self, cwd: Path) -> SessionResources:
        place = self._setup.resources_at(cwd)
        await place.servers.refresh()
        if not place.models.choices():
            raise AuthRequired(
                "no model can be used: set a key such as ANTHROPIC_API_KEY where go-ent is started, or "
                "run `go-ent init` and fill in .goent/providers.yaml; `go-ent doctor` says what is there"
            )
        return place

    def _allowed(self, tools: Mapping[str, AgentTool]) -> Mapping[str, AgentTool]:
        allowed, refused = self._setup.allowed, self._setup.refused
        kept = (tools.keys() if allowed is None else tools.keys() & allowed) - refused
        return {name: tool for name, tool in tools.items() if name in kept}

    def _tool_context(
        self, client: AgentClient, session: str, roots: tuple[Path, ...], place: SessionResources
    ) -> ToolContext:
        return ToolContext(
            session=session,
            cwd=roots[0],
            roots=roots,
            environ=place.environ,
            file_reader=client.files_read(session) if client.files_read else None,
            file_writer=client.files_write(session) if client.files_write else None,
            terminals=client.terminals(session) if client.terminals else None,
            writable=place.writable,
            owner=self._setup.owner,
        )


def _page_offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not cursor.isdecimal():
        raise RequestError(f"{cursor!r} is no cursor: take the one that session/list gave")
    return int(cursor)
