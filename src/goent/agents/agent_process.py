"""Runs one agent process and opens a session in it, on the worker's model.

It runs in a task of its own, so that it can outlive the turn that started it. Whoever started it
closes it; one that hangs up by itself is ended with everything that it started.
"""

import logging
import signal

import anyio
import msgspec
from anyio.abc import TaskStatus
from msgspec import Raw, Struct

from goent.acp.client_messages import (
    AcpInitializeResult,
    AgentCapabilities,
    AuthMethod,
    NewSession,
    OpenedSession,
)
from goent.acp.message_parts import find_option
from goent.agents.agent_connection import (
    AUTH_REQUIRED,
    INTERNAL_ERROR_PREFIX,
    AgentConnection,
    AgentListener,
    call_with_login,
    choose_login,
    error_type_for,
    list_names,
    login_remedy,
)
from goent.agents.agent_launch import AgentLaunch
from goent.agents.opencode_program import OPENCODE_NAME, check_agent
from goent.agents.process_vitals import EXIT_CODE_TIMEOUT_S, without_colours
from goent.domain.errors import (
    NothingSaid,
    ProtocolError,
    ProviderRefused,
    UnknownModel,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.ports import WorkerSpec
from goent.domain.types import Provider
from goent.proc.child_process import SupervisedProcess, supervised
from goent.proc.concurrency import task_group
from goent.proc.process_table import is_alive, send_signal
from goent.providers import gateway_errors
from goent.providers.gateway_errors import failure_of_kind, gateway_failure
from goent.rpc.json_rpc import RpcError


class _AgentErrorData(Struct, frozen=True, kw_only=True):
    """What go-ent's own agent adds: the kind of failure."""

    kind: str = ""


def classify_agent_error(
    error: RpcError, launch: AgentLaunch, logins: tuple[AuthMethod, ...] | None, *, remedy: str = ""
) -> WorkerError:
    """The refusal of a session or a prompt, as the kind of failure it is."""
    message = gateway_errors.unmask_retry_words(error.message.removeprefix(INTERNAL_ERROR_PREFIX))
    if error.code == AUTH_REQUIRED:
        setting = f"agents.{launch.name}.auth_method"
        how = login_remedy(launch.command, logins or (), setting, launch.auth_method)
        return ProviderRefused(f"{launch.name} requires a login: {how} ({message})")
    kind = _error_kind(error.data)
    if kind == NothingSaid.kind:
        return NothingSaid(message)
    known = failure_of_kind(kind, message) or gateway_failure(message)
    return known or error_type_for(message)(f"{launch.name}: {message}{remedy}")


def _error_kind(data: Raw | None) -> str:
    try:
        return msgspec.json.decode(data or b"{}", type=_AgentErrorData).kind
    except msgspec.DecodeError:
        return ""


END_TIMEOUT_S = 15.0  # for the end of a process and everything it started

log = logging.getLogger(__name__)


class AgentProcess:
    """One agent. `gone` is set when it hangs up, `finished` when nothing of it is left."""

    def __init__(self, launch: AgentLaunch, client: AgentListener, mark: str) -> None:
        self.launch = launch
        self.gone = anyio.Event()
        self.finished = anyio.Event()
        self._client = client
        self._mark = mark
        self._stop = anyio.Event()
        self._kill_reason = ""
        self._code: int | None = None
        self._stderr = ""
        self._parts: tuple[SupervisedProcess, AgentConnection, AcpInitializeResult] | None = None

    @property
    def child(self) -> SupervisedProcess:
        return self._ready[0]

    @property
    def connection(self) -> AgentConnection:
        return self._ready[1]

    @property
    def initialize_result(self) -> AcpInitializeResult:
        """The agent's reply to the handshake."""
        return self._ready[2]

    @property
    def lost(self) -> bool:
        """Whether the agent will not answer any more."""
        if self.gone.is_set() or self._kill_reason:
            return True
        return not is_alive(self.child.pid)  # it may have died just now

    async def run(self, *, task_status: TaskStatus[None]) -> None:
        """Started after the handshake; raises a `WorkerError` if it does not get there."""
        try:
            async with (
                self.launch.confined() as start,
                supervised(
                    start.command,
                    cwd=self.launch.cwd,
                    env=start.env,
                    mark=self._mark,
                    inner_mark=start.mark,
                ) as child,
            ):
                await self._serve_until_stopped(child, task_status)
        except Exception as error:
            if self._parts is None:
                raise
            log.exception("internal error in agent %s", self.launch.name, exc_info=error)
        finally:
            self.gone.set()
            self.finished.set()

    async def close(self) -> None:
        """End it and everything it started."""
        self._stop.set()
        with anyio.move_on_after(END_TIMEOUT_S, shield=True):
            await self.finished.wait()

    def kill(self, why: str) -> None:
        """End it immediately: it does not react any more."""
        self._kill_reason = why
        send_signal(self.child.pid, signal.SIGKILL)

    async def crash(self, *, session_lives: bool) -> WorkerCrashed:
        """How it ended, as an error."""
        with anyio.move_on_after(END_TIMEOUT_S):
            await self.finished.wait()
        return self._crash(self.child, session_lives=session_lives)

    @property
    def _ready(self) -> tuple[SupervisedProcess, AgentConnection, AcpInitializeResult]:
        assert self._parts, "an agent is used only after its handshake"
        return self._parts

    async def _serve_until_stopped(
        self, child: SupervisedProcess, task_status: TaskStatus[None]
    ) -> None:
        async with task_group() as tasks:
            connection = AgentConnection(
                child.stdout, child.stdin, self._client, name=self.launch.name, takes_writes=False
            )
            tasks.start_soon(self._serve, connection)
            reply = await self._initialize(connection, child)
            self._parts = (child, connection, reply)
            task_status.started()
            tasks.start_soon(self._cancel_when_stopped, tasks.cancel_scope)
            await self.gone.wait()
            await self._read_exit(child)
            tasks.cancel_scope.cancel()

    async def _cancel_when_stopped(self, scope: anyio.CancelScope) -> None:
        await self._stop.wait()
        scope.cancel()

    async def _serve(self, connection: AgentConnection) -> None:
        try:
            await connection.run()
        finally:
            self.gone.set()

    async def _read_exit(self, child: SupervisedProcess) -> None:
        """Note how it ended by itself, before its processes are ended."""
        with anyio.move_on_after(EXIT_CODE_TIMEOUT_S):
            self._code = await child.wait()
        self._stderr = child.stderr

    async def _initialize(
        self, connection: AgentConnection, child: SupervisedProcess
    ) -> AcpInitializeResult:
        patience = self.launch.start_timeout
        try:
            with anyio.fail_after(patience):
                reply = await connection.initialize(patience=None)
        except TimeoutError:
            message = f"{self.launch.name} (pid {child.pid}) did not answer within {patience:g} s"
            raise WorkerCrashed(_with_stderr(message, child.stderr), stderr=child.stderr) from None
        except WorkerCrashed:
            await self._read_exit(child)
            raise self._crash(child, session_lives=False, remedy=self.launch.remedy) from None
        except ProtocolError as error:
            raise ProtocolError(_with_stderr(str(error), child.stderr)) from error
        except RpcError as error:
            raise self.refusal(error, opening=True) from error
        if reply.agent_info and reply.agent_info.name == OPENCODE_NAME:
            check_agent(reply.agent_info.version, self.launch.name)
        return reply

    def refusal(self, error: RpcError, *, opening: bool = False) -> WorkerError:
        """The agent's refusal of a prompt, or of a session when it is opened."""
        logins = self._parts[2].auth_methods if self._parts else ()
        return classify_agent_error(
            error, self.launch, logins, remedy=self.launch.remedy if opening else ""
        )

    def _crash(
        self, child: SupervisedProcess, *, session_lives: bool, remedy: str = ""
    ) -> WorkerCrashed:
        ending = "hung up" if self._code is None else f"ended with code {self._code}"
        ending = self._kill_reason or ending
        return WorkerCrashed(
            _with_stderr(f"{self.launch.name} (pid {child.pid}) {ending}", self._stderr) + remedy,
            returncode=self._code,
            stderr=without_colours(self._stderr),
            session_lives=session_lives,
        )


def _with_stderr(message: str, stderr: str) -> str:
    last = without_colours(stderr)[-500:].strip()
    return f"{message}: {last}" if last else message


SessionReply = NewSession | OpenedSession


async def choose_model(
    connection: AgentConnection,
    session: str,
    opened: SessionReply,
    provider: Provider,
    launch: AgentLaunch,
) -> None:
    """Set the model by its option, or by the older request; raises `UnknownModel` with its models.

    go-ent's own agent was started with the model, so this matters only for a resumed session.
    """
    if not provider.model:
        return
    wanted = (provider.model, provider.opencode_model, provider.name)
    option = find_option(opened.config_options, "model")
    if option:
        if option.current_value in wanted:
            return
        choices = tuple(choice.value for choice in option.choices)
        name = _pick_model(wanted, choices, launch)
        await connection.set_model(session, name, option=option.id)
    elif opened.models:
        if opened.models.current_model_id in wanted:
            return
        choices = tuple(model.model_id for model in opened.models.available_models)
        await connection.set_legacy_model(session, _pick_model(wanted, choices, launch))
    elif not launch.own:
        raise UnknownModel(
            f"{launch.name} offers no choice of a model, so {provider.model!r} is not available: "
            f"leave `models` out of agents.{launch.name} in .goent/config.yaml"
        )


def _pick_model(wanted: tuple[str, ...], choices: tuple[str, ...], launch: AgentLaunch) -> str:
    found = next((name for name in wanted if name in choices), None)
    if found is None:
        names = list_names(choices)
        raise UnknownModel(f"{launch.name} has no model {wanted[0]!r}; it has: {names}")
    return found


def keeps_sessions(able: AgentCapabilities) -> bool:
    """Whether it can reopen a session."""
    return able.load_session or _resumes(able)


def closes_sessions(able: AgentCapabilities) -> bool:
    return bool(able.session_capabilities and able.session_capabilities.close)


async def open_session(
    process: AgentProcess, spec: WorkerSpec, earlier: str | None
) -> tuple[str, SessionReply, AuthMethod | None]:
    """The session's id, on the worker's model, and the login that the agent required, if any.

    Raises `RpcError` if it requires a login that only the user can choose or make.
    """
    launch = process.launch
    method = choose_login(process.initialize_result.auth_methods or (), launch.auth_method)
    (session, opened), took_login = await call_with_login(
        process.connection,
        method,
        lambda: _open(process, spec, earlier),
        patience=launch.start_timeout,
    )
    return session, opened, method if took_login else None


async def _open(
    process: AgentProcess, spec: WorkerSpec, earlier: str | None
) -> tuple[str, SessionReply]:
    connection, launch, cwd = process.connection, process.launch, str(spec.cwd)
    opened: SessionReply
    if earlier is None:
        opened = await connection.new_session(cwd, patience=launch.start_timeout)
        session = opened.session_id
    else:
        opened, session = await _reopen(process, earlier, cwd), earlier
    await choose_model(connection, session, opened, spec.provider, launch)
    return session, opened


async def _reopen(process: AgentProcess, session: str, cwd: str) -> SessionReply:
    able, name = process.initialize_result.agent_capabilities, process.launch.name
    if not keeps_sessions(able):
        raise WorkerError(
            f"{name} keeps no sessions, so the worker cannot continue: spawn another one"
        )
    # `session/resume` is preferred to `session/load`, which repeats the history.
    connection = process.connection
    again = connection.resume_session if _resumes(able) else connection.load_session
    try:
        return await again(session, cwd)
    except RpcError as error:
        if error.code == AUTH_REQUIRED:
            raise
        raise WorkerError(
            f"{name} has no session {session!r} to resume: {error.message}"
        ) from error


def _resumes(able: AgentCapabilities) -> bool:
    return bool(able.session_capabilities and able.session_capabilities.resume)
