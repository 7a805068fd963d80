"""How is a worker's session had in an agent's process: a new one, or the one that it had?"""

from goent.acp.messages import AgentCapabilities, AuthMethod
from goent.domain.errors import WorkerError
from goent.domain.ports import WorkerSpec
from goent.drivers.acp_failures import AUTH_REQUIRED
from goent.drivers.acp_login import chosen, logged_in
from goent.drivers.agent.models import Opened, choose_model
from goent.drivers.agent.process import AgentProcess
from goent.rpc import RpcError


def keeps_sessions(able: AgentCapabilities) -> bool:
    """Whether it can open a session that it had before."""
    return able.load_session or _resumes(able)


def closes_sessions(able: AgentCapabilities) -> bool:
    return bool(able.session_capabilities and able.session_capabilities.close)


async def open_session(
    process: AgentProcess, spec: WorkerSpec, earlier: str | None
) -> tuple[str, Opened, AuthMethod | None]:
    """The session's id, on the worker's model, and how the agent was logged in if it demanded that.

    Raises `RpcError` if it wants a login that is somebody's to choose, or to make.
    """
    launch = process.launch
    method = chosen(process.hello.auth_methods or (), launch.auth_method)
    (session, opened), took_login = await logged_in(
        process.connection,
        method,
        lambda: _open(process, spec, earlier),
        patience=launch.start_timeout,
    )
    return session, opened, method if took_login else None


async def _open(process: AgentProcess, spec: WorkerSpec, earlier: str | None) -> tuple[str, Opened]:
    connection, launch, cwd = process.connection, process.launch, str(spec.cwd)
    opened: Opened
    if earlier is None:
        opened = await connection.new_session(cwd, patience=launch.start_timeout)
        session = opened.session_id
    else:
        opened, session = await _open_again(process, earlier, cwd), earlier
    await choose_model(connection, session, opened, spec.provider, launch)
    return session, opened


async def _open_again(process: AgentProcess, session: str, cwd: str) -> Opened:
    able, name = process.hello.agent_capabilities, process.launch.name
    if not keeps_sessions(able):
        raise WorkerError(
            f"{name} keeps no sessions, so the worker cannot go on: spawn another one"
        )
    # `session/resume` rather than `session/load`: what was said was told when it was said.
    connection = process.connection
    again = connection.resume_session if _resumes(able) else connection.load_session
    try:
        return await again(session, cwd)
    except RpcError as error:
        if error.code == AUTH_REQUIRED:
            raise
        told = f"{name} has no session {session!r} that it could go on with"
        raise WorkerError(f"{told}: {error.message}") from error


def _resumes(able: AgentCapabilities) -> bool:
    return bool(able.session_capabilities and able.session_capabilities.resume)
