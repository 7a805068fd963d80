"""Runs workers' sessions over ACP, in an `opencode acp` process that many of them share.

A turn's events come from three places: ACP updates, permission questions, and the server's event
stream, which reports retries, errors and subagents.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from goent.acp.agent_messages import (
    AnyUpdate,
    PermissionCancelled,
    PermissionOutcome,
    PermissionRequest,
)
from goent.acp.client_messages import AuthMethod
from goent.acp.message_parts import AcpText, ConfigOption, ContentBlock, ResourceLink, find_option
from goent.agents.acp_turn import LATE_UPDATE_TIMEOUT_S
from goent.agents.agent_connection import (
    AUTH_REQUIRED,
    AgentConnection,
    call_with_login,
    choose_login,
    list_names,
)
from goent.agents.open_questions import permission_outcome
from goent.agents.opencode_program import OPENCODE_NAME, check_version
from goent.domain.errors import (
    ModelRefused,
    ProtocolError,
    UnknownModel,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.ports import Gate, TurnStopReason, WorkerSpec
from goent.domain.types import Prompt
from goent.opencode.config_overlay import WARM
from goent.opencode.event_stream import (
    EVENTS_BESIDE_ACP,
    Connected,
    ServerEvent,
    SessionError,
    SessionListener,
    SessionStatus,
)
from goent.opencode.opencode_process import BOOT_TIMEOUT_S, OpenCodeProcess
from goent.opencode.opencode_turn import OpenCodeTurn, classify_error
from goent.opencode.process_launch import OpenCodeLaunch
from goent.opencode.server_api import OpenCodeClient, PendingQuestion
from goent.opencode.session import CLOSE_TIMEOUT_S, BaseSession
from goent.proc.child_process import SupervisedProcess
from goent.rpc.json_rpc import RpcError

OfferedOptions = tuple[ConfigOption, ...] | None
# OpenCode trims a prompt, and one that begins with a slash never reaches the model.
_SLASH = re.compile(r"[\s\ufeff]*/")


class AcpListener(SessionListener, Protocol):
    """A session of ours, as its process sees it."""

    async def update(self, update: AnyUpdate) -> None: ...

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome: ...


class AcpProcess(OpenCodeProcess):
    """One `opencode acp`; `gone` is set when it hangs up."""

    event_kinds = EVENTS_BESIDE_ACP

    def __init__(
        self,
        child: SupervisedProcess,
        client: OpenCodeClient,
        tasks: TaskGroup,
        launch: OpenCodeLaunch,
    ) -> None:
        super().__init__(child, client, tasks, launch)
        self.connection = AgentConnection(child.stdout, child.stdin, self, name=OPENCODE_NAME)
        self.login: AuthMethod | None = None
        self._sessions: dict[str, AcpListener] = {}

    @classmethod
    def _arguments(cls, launch: OpenCodeLaunch, port: int) -> Sequence[str]:
        return ("acp", "--port", str(port), *launch.arguments)

    async def open(
        self,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path],
        earlier: BaseSession | None,
    ) -> BaseSession:
        return await AcpSession.start(
            self, spec, direct=direct, instructions=instructions, earlier=earlier
        )

    async def boot(self, gate: Gate, cwd: Path) -> None:
        try:
            session = (await self.connection.new_session(str(cwd))).session_id
            gate.bind(token=self.token, session=session, worker=None)
            try:
                await self.connection.set_model(session, WARM)
                await self.connection.prompt(session, [AcpText(text="ok")], timeout=BOOT_TIMEOUT_S)
            finally:
                gate.unbind(session)
                await self._delete(session)
        except RpcError as error:
            raise ProtocolError(f"warming up {str(cwd)!r} failed: {error.message}") from error

    async def _delete(self, session: str) -> None:
        with (
            anyio.CancelScope(shield=True),
            anyio.move_on_after(CLOSE_TIMEOUT_S),
            suppress(WorkerError, RpcError, TimeoutError),
        ):
            await self.connection.close_session(session)
            await self.client.delete(session)

    def add(self, session: str, listener: AcpListener) -> None:
        self._sessions[session] = listener
        self.router.add(session, listener)

    def remove(self, session: str) -> None:
        self._sessions.pop(session, None)
        self.router.remove(session)

    async def update(self, session_id: str, update: AnyUpdate) -> None:
        if listener := self._sessions.get(session_id):
            await listener.update(update)

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        listener = self._sessions.get(request.session_id)
        return await listener.request_permission(request) if listener else PermissionCancelled()

    async def _serve(self) -> None:
        try:
            await self.connection.run()
        finally:
            self.gone.set()

    async def _connect(self) -> None:
        self._tasks.start_soon(self._serve)
        try:
            reply = await self.connection.initialize()
        except RpcError as error:
            raise ProtocolError(
                f"{OPENCODE_NAME} refused the handshake: {error.message}"
            ) from error
        self.login = choose_login(reply.auth_methods or ())
        version = reply.agent_info.version if reply.agent_info else ""
        check_version(version, repr(str(self._launch.program)))


class AcpSession(BaseSession):
    """One session of an `opencode acp`. `start` gives it its model and its rules."""

    def __init__(
        self,
        process: AcpProcess,
        spec: WorkerSpec,
        session: str,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
    ) -> None:
        super().__init__(process, spec, session, direct=direct, instructions=instructions)
        self._process = process

    @classmethod
    async def start(
        cls,
        process: AcpProcess,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path] = (),
        earlier: BaseSession | None = None,
    ) -> "AcpSession":
        """Open the session, on the worker's model and under its rules.

        `earlier` is the same one in a process that it has left.
        """
        try:
            (name, options), _ = await call_with_login(
                process.connection, process.login, lambda: _open(process, spec)
            )
            session = cls(process, spec, name, direct=direct, instructions=instructions)
            await session._set_model(options)
            await process.client.set_up(name, title=spec.id, rules=spec.rules)
            if spec.resume:
                await session.restore(earlier)
        except WorkerCrashed:
            raise await process.crash() from None
        except ProtocolError:
            if await process.is_ending():
                raise await process.crash() from None
            raise
        except RpcError as error:
            raise classify_error(error, None) from error
        process.add(name, session)
        process.guard.add(name, session)
        return session

    async def close(self) -> None:
        self._process.remove(self.id)
        self._process.guard.remove(self.id)
        with anyio.move_on_after(CLOSE_TIMEOUT_S), suppress(WorkerError, RpcError, TimeoutError):
            if self._turn is not None:
                await self._process.client.abort(self.id)
            await self._process.connection.close_session(self.id)

    async def update(self, update: AnyUpdate) -> None:
        if self._turn:
            await self._turn.put_update(update)

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome:
        turn = self._turn
        if turn is None or turn.cancelled:
            return PermissionCancelled()
        access, reply = await self.questions.ask_own(request, turn.put)
        if reply.answer == "reject" and not reply.message:
            turn.rejected = access
        return permission_outcome(request, reply.answer)

    async def hear_question(self, question: PendingQuestion) -> None:
        if question.session != self.id:  # its own arrive by ACP
            await super().hear_question(question)

    async def hear(self, event: ServerEvent) -> None:
        match event:
            case SessionStatus(status=status) if status.type == "retry":
                await self._report_retry(status)
            case SessionError(error=error) if self._turn:
                self._turn.note_fault(error)
            case Connected():
                self._bypass_detector.missed = True
            case _:
                pass

    async def _request_stop(self) -> None:
        await self._process.connection.cancel(self.id)

    async def _set_model(self, options: OfferedOptions) -> None:
        try:
            await self._process.connection.set_model(self.id, self._model)
        except UnknownModel as error:
            option = find_option(options, "model")
            known = [c.value for c in option.choices if c.value != WARM] if option else []
            raise UnknownModel(f"{error}; it has: {list_names(known)}") from error

    def _blocks(self, prompt: Prompt) -> Sequence[ContentBlock]:
        text = f"Task:\n{prompt.text}" if _SLASH.match(prompt.text) else prompt.text
        paths = self._attached(prompt)
        links = [ResourceLink(uri=path.as_uri(), name=path.name) for path in paths]
        return [AcpText(text=text), *links]

    async def _run_turn(self, turn: OpenCodeTurn, prompt: Prompt) -> None:
        try:
            await turn.run_prompt(
                lambda: self._process.connection.prompt(self.id, self._blocks(prompt))
            )
            if isinstance(turn.error, WorkerCrashed):
                await self._withdraw_questions(turn)
        finally:
            turn.close()

    async def _end_of_turn(self, turn: OpenCodeTurn) -> TurnStopReason:
        if isinstance(turn.error, WorkerCrashed):
            raise await self._process.crash() from turn.error
        turn.check_rejected()
        if turn.cancelled or turn.stop_reason == "cancelled":
            return "cancelled"
        if isinstance(turn.error, RpcError):
            raise classify_error(
                turn.error, await turn.last_fault(LATE_UPDATE_TIMEOUT_S)
            ) from turn.error
        if turn.error:
            raise turn.error
        if turn.stop_reason == "refusal":
            raise ModelRefused(f"{self._model} refused to answer")
        self._check_output(turn)
        return "end"


async def _open(process: AcpProcess, spec: WorkerSpec) -> tuple[str, OfferedOptions]:
    if spec.resume is None:
        new = await process.connection.new_session(str(spec.cwd))
        return new.session_id, new.config_options
    try:
        # Not `session/load`, which would repeat the history.
        opened = await process.connection.resume_session(spec.resume, str(spec.cwd))
    except RpcError as error:
        if error.code == AUTH_REQUIRED:
            raise
        raise WorkerError(
            f"OpenCode has no session {spec.resume!r} to resume: {error.message}"
        ) from error
    return spec.resume, opened.config_options
