"""Talks to an ACP agent: requests, updates, login and refusals.

Requests go out as methods; the agent's updates and questions come in through an `AgentListener`. An
agent's own refusals stay `RpcError`s, which only its driver can interpret.

go-ent logs in by a method that the agent carries out itself, if the settings name it or it is the
only one. Otherwise the error lists what the agent offers, with the exact command for a terminal.
"""

import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream
from msgspec import Raw

from goent import __version__
from goent.acp import agent_messages, client_messages
from goent.acp.agent_messages import (
    AnyUpdate,
    PermissionOutcome,
    PermissionRequest,
    PermissionResponse,
    decode_update,
)
from goent.acp.client_messages import (
    AcpInitializeParams,
    AcpInitializeResult,
    AuthCapabilities,
    AuthenticateParams,
    AuthMethod,
    ClientCapabilities,
    EmptyResult,
    FileSystemCapabilities,
    Implementation,
    NewSession,
    NewSessionParams,
    OpenedSession,
    OpenSessionParams,
    PromptParams,
    PromptResult,
    SessionParams,
    SetConfigOptionParams,
    SetModelParams,
    SetModeParams,
)
from goent.acp.message_parts import ContentBlock, find_option
from goent.domain.errors import (
    ProtocolError,
    ProviderDown,
    ProviderTimeout,
    TurnTimeout,
    UnknownModel,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.input_mistakes import ARGUMENTS, explain_undecodable
from goent.rpc.json_rpc import (
    INVALID_PARAMS,
    BadReply,
    ConnectionLost,
    InvalidParams,
    MethodNotFound,
    RpcError,
)
from goent.rpc.rpc_peer import Peer

REQUEST_TIMEOUT_S = 60.0  # for a request that does no work; a cold OpenCode takes five
CANCEL_TIMEOUT_S = 1.0  # for sending a cancellation to an agent that may not read

T = TypeVar("T")


class AgentListener(Protocol):
    """Receives the agent's updates and questions."""

    async def update(self, session_id: str, update: AnyUpdate) -> None:
        """Called in order, one at a time; the agent waits until it returns."""
        ...

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome: ...


class AgentConnection:
    """One agent on a pair of byte streams. It works while `run` runs."""

    def __init__(
        self,
        receive: ByteReceiveStream,
        send: ByteSendStream,
        client: AgentListener,
        *,
        name: str,
        takes_writes: bool = True,
    ) -> None:
        """`takes_writes`: accept `fs/write_text_file` from an agent that writes the file itself."""
        self._name = name
        self._peer = Peer(receive, send, _Inbound(client, takes_writes=takes_writes))

    async def run(self) -> None:
        """Returns when the agent has hung up."""
        await self._peer.run()

    async def aclose(self) -> None:
        """Hang up, which asks an agent on pipes to exit."""
        await self._peer.aclose()

    async def initialize(
        self, *, patience: float | None = REQUEST_TIMEOUT_S
    ) -> AcpInitializeResult:
        """Agree on the protocol version. We offer no files and no terminals.

        Login in a terminal counts as supported: the user gets the command.
        """
        params = AcpInitializeParams(
            protocol_version=client_messages.PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(
                fs=FileSystemCapabilities(), auth=AuthCapabilities(terminal=True)
            ),
            client_info=Implementation(name="go-ent", version=__version__),
        )
        result = await self._ask(
            client_messages.INITIALIZE, params, _decoder(AcpInitializeResult), patience=patience
        )
        if result.protocol_version != client_messages.PROTOCOL_VERSION:
            raise ProtocolError(
                f"{self._name} speaks ACP version {result.protocol_version}, "
                f"go-ent speaks {client_messages.PROTOCOL_VERSION}: use a release that does too"
            )
        return result

    async def new_session(self, cwd: str, *, patience: float = REQUEST_TIMEOUT_S) -> NewSession:
        params = NewSessionParams(cwd=cwd)
        return await self._ask(
            client_messages.SESSION_NEW,
            params,
            client_messages.decode_new_session,
            patience=patience,
        )

    async def authenticate(self, method: str, *, patience: float = REQUEST_TIMEOUT_S) -> None:
        """Have the agent log in by one of its methods."""
        params = AuthenticateParams(method_id=method)
        await self._ask(
            client_messages.AUTHENTICATE, params, _decoder(EmptyResult), patience=patience
        )

    async def load_session(self, session_id: str, cwd: str) -> OpenedSession:
        """Reopen a session; its history arrives first, as updates."""
        return await self._open(client_messages.SESSION_LOAD, session_id, cwd)

    async def resume_session(self, session_id: str, cwd: str) -> OpenedSession:
        """Reopen a session without its history."""
        return await self._open(client_messages.SESSION_RESUME, session_id, cwd)

    async def set_model(self, session_id: str, model: str, *, option: str = "model") -> str:
        """Set the session's model, and return the one that the agent reports."""
        params = SetConfigOptionParams(session_id=session_id, config_id=option, value=model)
        try:
            result = await self._ask(
                client_messages.SESSION_SET_CONFIG_OPTION,
                params,
                client_messages.decode_config_options,
            )
        except RpcError as error:
            if error.code != INVALID_PARAMS:
                raise
            raise UnknownModel(f"{self._name} has no model {model!r}: {error.message}") from error
        chosen = find_option(result.config_options, option)
        if chosen is None or chosen.current_value != model:
            now = chosen.current_value if chosen else None
            raise UnknownModel(f"{self._name} was asked to use {model!r} and uses {now!r}")
        return chosen.current_value

    async def set_mode(self, session_id: str, mode: str, *, option: str = "") -> str | None:
        """Set the session's mode by its option, and return the one that the agent reports.

        Without an option, by the older request, which reports nothing: None.
        """
        if not option:
            older = SetModeParams(session_id=session_id, mode_id=mode)
            await self._ask(client_messages.SESSION_SET_MODE, older, _decoder(EmptyResult))
            return None
        params = SetConfigOptionParams(session_id=session_id, config_id=option, value=mode)
        result = await self._ask(
            client_messages.SESSION_SET_CONFIG_OPTION, params, client_messages.decode_config_options
        )
        chosen = find_option(result.config_options, option)
        return chosen.current_value if chosen else ""

    async def set_legacy_model(self, session_id: str, model: str) -> None:
        """Set the model by a request that left the protocol, but that many agents still answer."""
        params = SetModelParams(session_id=session_id, model_id=model)
        await self._ask(client_messages.SESSION_SET_MODEL, params, _decoder(EmptyResult))

    async def prompt(
        self,
        session_id: str,
        blocks: Sequence[ContentBlock],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (the agent is sent a cancellation)
    ) -> PromptResult:
        """Take one turn; returns when all its updates have been handled.

        On a timeout or a cancellation, the agent's turn is cancelled.
        """
        params = PromptParams(session_id=session_id, prompt=tuple(blocks))
        try:
            with anyio.fail_after(timeout):
                return await self._ask(
                    client_messages.SESSION_PROMPT, params, _decoder(PromptResult), patience=None
                )
        except TimeoutError:
            await self._leave(session_id)
            raise TurnTimeout(f"the turn took longer than {timeout} s") from None
        except anyio.get_cancelled_exc_class():
            await self._leave(session_id)
            raise

    async def cancel(self, session_id: str) -> None:
        """Ask the running turn to end; its `prompt` then returns."""
        try:
            await self._peer.notify(
                client_messages.SESSION_CANCEL, SessionParams(session_id=session_id)
            )
        except ConnectionLost:
            return  # the agent is gone

    async def close_session(self, session_id: str) -> None:
        params = SessionParams(session_id=session_id)
        await self._ask(client_messages.SESSION_CLOSE, params, _decoder(EmptyResult))

    async def extension(self, method: str, params: object) -> Raw:
        """Send a request outside the protocol."""
        return await self._ask(method, params, client_messages.null_as_empty)

    async def _leave(self, session_id: str) -> None:
        with anyio.move_on_after(CANCEL_TIMEOUT_S, shield=True):
            await self.cancel(session_id)

    async def _open(self, method: str, session_id: str, cwd: str) -> OpenedSession:
        params = OpenSessionParams(session_id=session_id, cwd=cwd)
        return await self._ask(method, params, client_messages.decode_opened_session)

    async def _ask(
        self,
        method: str,
        params: object,
        decode: Callable[[Raw], T],
        *,
        patience: float | None = REQUEST_TIMEOUT_S,
    ) -> T:
        try:
            reply = await self._peer.request_raw(method, params, timeout=patience)
        except ConnectionLost as error:
            raise WorkerCrashed(f"{self._name} went away during {method!r}") from error
        except TimeoutError as error:
            raise ProtocolError(f"{self._name} gave {error}") from error
        except BadReply as error:
            raise ProtocolError(f"{self._name} answered {method!r} badly: {error}") from error
        try:
            return decode(reply)
        except (msgspec.DecodeError, RecursionError) as error:
            why = explain_undecodable(error, reply, object, ARGUMENTS)
            raise ProtocolError(f"{self._name} answered {method!r} badly: {why}") from error


class _Inbound:
    def __init__(self, client: AgentListener, *, takes_writes: bool) -> None:
        self._client = client
        self._takes_writes = takes_writes

    async def notification(self, method: str, params: Raw) -> None:
        if method == client_messages.SESSION_UPDATE:
            try:
                notification = decode_update(params)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidParams(str(error)) from error
            await self._client.update(notification.session_id, notification.update)

    async def request(self, method: str, params: Raw) -> object:
        if method == agent_messages.REQUEST_PERMISSION:
            try:
                request = agent_messages.decode_permission_request(params)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidParams(str(error)) from error
            return PermissionResponse(outcome=await self._client.request_permission(request))
        if method == agent_messages.FS_WRITE_TEXT_FILE and self._takes_writes:
            # OpenCode sends it after an approved edit, and writes the file itself.
            return EmptyResult()
        raise MethodNotFound(method)


def _decoder(kind: type[T]) -> Callable[[Raw], T]:
    return lambda raw: msgspec.json.decode(client_messages.null_as_empty(raw), type=kind)


AUTH_REQUIRED = -32000
INTERNAL_ERROR_PREFIX = "Internal error: "  # by which agents introduce errors of their models
MAX_NAMES = 20

_ERROR_PATTERNS: tuple[tuple[re.Pattern[str], type[WorkerError]], ...] = (
    (re.compile(r"model not found", re.IGNORECASE), UnknownModel),
    (re.compile(r"timed? ?out", re.IGNORECASE), ProviderTimeout),
    (re.compile(r"connect|socket|network|fetch failed", re.IGNORECASE), ProviderDown),
    (re.compile(r"without a finish reason"), ProviderDown),
)


def error_type_for(message: str) -> type[WorkerError]:
    """The type of an error of which only the message is known."""
    found = (kind for words, kind in _ERROR_PATTERNS if words.search(message))
    return next(found, WorkerError)


def list_names(names: Sequence[str], most: int = MAX_NAMES) -> str:
    """The names for a message, the first of them if there are many."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


BY_AGENT, BY_TERMINAL = "agent", "terminal"
LoginMethods = Sequence[AuthMethod]


def choose_login(methods: LoginMethods, wanted: str = "") -> AuthMethod | None:
    """The login method to use without asking; None if there are several, or none."""
    own = _agent_logins(methods)
    if wanted:
        return next((method for method in own if method.id == wanted), None)
    return own[0] if len(own) == 1 else None


async def call_with_login(
    connection: AgentConnection,
    method: AuthMethod | None,
    ask: Callable[[], Awaitable[T]],
    *,
    patience: float = REQUEST_TIMEOUT_S,
) -> tuple[T, bool]:
    """The reply, and whether it took a login. Raises `RpcError` if it is refused anyway."""
    try:
        return await ask(), False
    except RpcError as error:
        if error.code != AUTH_REQUIRED or method is None:
            raise
    try:
        await connection.authenticate(method.id, patience=patience)
    except (RpcError, ProtocolError) as error:
        why = error.message if isinstance(error, RpcError) else str(error)
        raise RpcError(AUTH_REQUIRED, f"its login with {method.id!r} failed: {why}") from error
    return await ask(), True


def describe_login(method: AuthMethod) -> str:
    return f"{method.id!r} ({method.name})" if method.name else repr(method.id)


def login_remedy(
    command: Sequence[str], methods: LoginMethods, setting: str, wanted: str = ""
) -> str:
    """What the user can do about a required login: in a terminal, or by naming a method."""
    ways = [_terminal_login(command, method) for method in methods if method.type == BY_TERMINAL]
    own = ", ".join(describe_login(method) for method in _agent_logins(methods))
    if own and choose_login(methods, wanted) is None:
        ways.append(f"set {setting} to one of {own}")
    if ways:
        return ", or ".join(ways)
    offered = f" (it offers: {own})" if own else ""
    return f"start {command[0]!r} in a terminal and log in there{offered}"


def _agent_logins(methods: LoginMethods) -> list[AuthMethod]:
    """The methods that the agent carries out itself."""
    return [method for method in methods if method.type in (None, BY_AGENT)]


def _terminal_login(command: Sequence[str], method: AuthMethod) -> str:
    """The protocol appends a method's arguments to those that the agent is started with."""
    env = [f"{name}={shlex.quote(value)}" for name, value in (method.env or {}).items()]
    words = " ".join((*env, shlex.join((*command, *(method.args or ())))))
    return f"run `{words}` in a terminal"
