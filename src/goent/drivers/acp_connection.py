"""How do we talk to an ACP agent, whichever it is?

The typed side of one connection: requests go out as methods, what the agent tells and asks
comes in through a `Client`. An agent's own refusals stay `RpcError`s: what they mean, only the
driver of that agent knows.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, ByteSendStream
from msgspec import Raw

from goent import __version__
from goent.acp import asks, messages
from goent.acp.asks import PermissionOutcome, PermissionRequest, PermissionResponse
from goent.acp.content import ContentBlock
from goent.acp.messages import (
    AuthCapabilities,
    AuthenticateParams,
    ClientCapabilities,
    Empty,
    FileSystemCapabilities,
    Implementation,
    InitializeParams,
    InitializeResult,
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
from goent.acp.options import find_option
from goent.acp.updates import AnyUpdate, decode_update
from goent.domain.errors import ProtocolError, TurnTimeout, UnknownModel, WorkerCrashed
from goent.rpc import BadReply, ConnectionLost, InvalidParams, MethodNotFound, Peer, RpcError
from goent.rpc.errors import INVALID_PARAMS

PATIENCE = 60.0  # seconds for a request that does no work; a cold OpenCode takes five
LAST_WORD = 1.0  # seconds for telling a peer that does not read to stop

T = TypeVar("T")


class Client(Protocol):
    """What the agent tells us and asks of us."""

    async def update(self, session_id: str, update: AnyUpdate) -> None:
        """In order, one at a time; the agent waits while this does."""
        ...

    async def request_permission(self, request: PermissionRequest) -> PermissionOutcome: ...


class AgentConnection:
    """One agent, on the other end of a pair of byte streams. It works while `run` runs."""

    def __init__(
        self,
        receive: ByteReceiveStream,
        send: ByteSendStream,
        client: Client,
        *,
        name: str,
        takes_writes: bool = True,
    ) -> None:
        """`takes_writes`: say yes to `fs/write_text_file`, from one who writes the file itself."""
        self._name = name
        self._peer = Peer(receive, send, _Inbound(client, takes_writes=takes_writes))

    async def run(self) -> None:
        """Returns when the agent has hung up."""
        await self._peer.run()

    async def aclose(self) -> None:
        """Hang up; to an agent on pipes that is the request to exit."""
        await self._peer.aclose()

    async def initialize(self, *, patience: float | None = PATIENCE) -> InitializeResult:
        """Agree on the protocol's version. We offer no files and no terminals.

        A login in a terminal is offered to the user, as a command.
        """
        params = InitializeParams(
            protocol_version=messages.PROTOCOL_VERSION,
            client_capabilities=ClientCapabilities(
                fs=FileSystemCapabilities(), auth=AuthCapabilities(terminal=True)
            ),
            client_info=Implementation(name="go-ent", version=__version__),
        )
        result = await self._ask(
            messages.INITIALIZE, params, _decoder(InitializeResult), patience=patience
        )
        if result.protocol_version != messages.PROTOCOL_VERSION:
            raise ProtocolError(
                f"{self._name} speaks ACP version {result.protocol_version}, "
                f"go-ent speaks {messages.PROTOCOL_VERSION}: use a release of it that does too"
            )
        return result

    async def new_session(self, cwd: str, *, patience: float = PATIENCE) -> NewSession:
        params = NewSessionParams(cwd=cwd)
        return await self._ask(
            messages.SESSION_NEW, params, messages.decode_new_session, patience=patience
        )

    async def authenticate(self, method: str, *, patience: float = PATIENCE) -> None:
        """Have the agent log in by one of the methods that it has named."""
        params = AuthenticateParams(method_id=method)
        await self._ask(messages.AUTHENTICATE, params, _decoder(Empty), patience=patience)

    async def load_session(self, session_id: str, cwd: str) -> OpenedSession:
        """Come back to a session; its history comes first, as updates."""
        return await self._open(messages.SESSION_LOAD, session_id, cwd)

    async def resume_session(self, session_id: str, cwd: str) -> OpenedSession:
        """Come back to a session without hearing its history."""
        return await self._open(messages.SESSION_RESUME, session_id, cwd)

    async def set_model(self, session_id: str, model: str, *, option: str = "model") -> str:
        """Choose the session's model. What comes back is what the agent says it is now."""
        params = SetConfigOptionParams(session_id=session_id, config_id=option, value=model)
        try:
            result = await self._ask(
                messages.SESSION_SET_CONFIG_OPTION, params, messages.decode_config_options
            )
        except RpcError as error:
            if error.code != INVALID_PARAMS:
                raise
            raise UnknownModel(f"{self._name} has no model {model!r}: {error.message}") from error
        chosen = find_option(result.config_options, option)
        if chosen is None or chosen.current_value != model:
            now = chosen.current_value if chosen else None
            raise UnknownModel(f"{self._name} was told to use {model!r} and has {now!r}")
        return chosen.current_value

    async def set_mode(self, session_id: str, mode: str, *, option: str = "") -> str | None:
        """Choose the session's mode, by the option for it; what the agent says it is now.

        Without an option by the older request, to which agents say nothing: None.
        """
        if not option:
            older = SetModeParams(session_id=session_id, mode_id=mode)
            await self._ask(messages.SESSION_SET_MODE, older, _decoder(Empty))
            return None
        params = SetConfigOptionParams(session_id=session_id, config_id=option, value=mode)
        result = await self._ask(
            messages.SESSION_SET_CONFIG_OPTION, params, messages.decode_config_options
        )
        chosen = find_option(result.config_options, option)
        return chosen.current_value if chosen else ""

    async def set_legacy_model(self, session_id: str, model: str) -> None:
        """The same by a request that the protocol no longer has, and many agents still answer."""
        params = SetModelParams(session_id=session_id, model_id=model)
        await self._ask(messages.SESSION_SET_MODEL, params, _decoder(Empty))

    async def prompt(
        self,
        session_id: str,
        blocks: Sequence[ContentBlock],
        *,
        timeout: float | None = None,  # noqa: ASYNC109 (the agent is told when it is over)
    ) -> PromptResult:
        """Take one turn; all its updates have been handled when this returns.

        A turn that is left, by cancellation or for the time it takes, is cancelled.
        """
        params = PromptParams(session_id=session_id, prompt=tuple(blocks))
        try:
            with anyio.fail_after(timeout):
                return await self._ask(
                    messages.SESSION_PROMPT, params, _decoder(PromptResult), patience=None
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
            await self._peer.notify(messages.SESSION_CANCEL, SessionParams(session_id=session_id))
        except ConnectionLost:
            return  # nothing is left that could go on

    async def close_session(self, session_id: str) -> None:
        params = SessionParams(session_id=session_id)
        await self._ask(messages.SESSION_CLOSE, params, _decoder(Empty))

    async def extension(self, method: str, params: object) -> Raw:
        """A request that this agent alone knows."""
        return await self._ask(method, params, messages.or_empty)

    async def _leave(self, session_id: str) -> None:
        with anyio.move_on_after(LAST_WORD, shield=True):
            await self.cancel(session_id)

    async def _open(self, method: str, session_id: str, cwd: str) -> OpenedSession:
        params = OpenSessionParams(session_id=session_id, cwd=cwd)
        return await self._ask(method, params, messages.decode_opened_session)

    async def _ask(
        self,
        method: str,
        params: object,
        decode: Callable[[Raw], T],
        *,
        patience: float | None = PATIENCE,
    ) -> T:
        try:
            return decode(await self._peer.request_raw(method, params, timeout=patience))
        except ConnectionLost as error:
            raise WorkerCrashed(f"{self._name} went away during {method!r}") from error
        except TimeoutError as error:
            raise ProtocolError(f"{self._name} gave {error}") from error
        except BadReply as error:
            raise ProtocolError(f"{self._name} answered {method!r} badly: {error}") from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise ProtocolError(f"{self._name} answered {method!r} with {error}") from error


class _Inbound:
    def __init__(self, client: Client, *, takes_writes: bool) -> None:
        self._client = client
        self._takes_writes = takes_writes

    async def notification(self, method: str, params: Raw) -> None:
        if method == messages.SESSION_UPDATE:
            try:
                told = decode_update(params)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidParams(str(error)) from error
            await self._client.update(told.session_id, told.update)

    async def request(self, method: str, params: Raw) -> object:
        if method == asks.REQUEST_PERMISSION:
            try:
                request = asks.decode_permission_request(params)
            except (msgspec.DecodeError, RecursionError) as error:
                raise InvalidParams(str(error)) from error
            return PermissionResponse(outcome=await self._client.request_permission(request))
        if method == asks.FS_WRITE_TEXT_FILE and self._takes_writes:
            # OpenCode says so after an approved edit, asked or not, and writes the file itself.
            return Empty()
        raise MethodNotFound(method)


def _decoder(kind: type[T]) -> Callable[[Raw], T]:
    return lambda raw: msgspec.json.decode(messages.or_empty(raw), type=kind)
