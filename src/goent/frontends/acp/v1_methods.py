"""What does the first version of the protocol let a client ask for?"""

from collections.abc import Callable
from typing import TypeVar

import msgspec
from anyio.abc import TaskGroup
from msgspec import UNSET, Raw, UnsetType

from goent.acp import messages
from goent.acp.messages import (
    AuthenticateParams,
    ClientCapabilities,
    ConfigOptions,
    Empty,
    ListSessionsParams,
    NewSession,
    NewSessionParams,
    OpenedSession,
    OpenSessionParams,
    PromptResult,
    SessionInfo,
    SessionList,
    SessionParams,
    SetConfigOptionParams,
    SetModeParams,
    TurnUsage,
)
from goent.agent.session import TurnEnd
from goent.domain.types import Usage
from goent.frontends.acp import offers
from goent.frontends.acp.client import ClientSide
from goent.frontends.acp.given import directories, directory, given, servers
from goent.frontends.acp.hello import known_method
from goent.frontends.acp.host import AgentHost
from goent.frontends.acp.sessions import Sessions, Wanted
from goent.frontends.acp.v1 import commands
from goent.frontends.acp.v1_asking import V1Asking
from goent.rpc import InvalidParams, MethodNotFound, Peer, decode_params

T = TypeVar("T")


class V1:
    """One connection that speaks it, from `initialize` on."""

    def __init__(
        self, peer: Peer, host: AgentHost, client: ClientCapabilities, tasks: TaskGroup
    ) -> None:
        side = ClientSide(peer, V1Asking(peer), client, tasks)
        self._sessions = Sessions(host, side, tasks)
        self._methods = {
            messages.AUTHENTICATE: self._authenticate,
            messages.SESSION_NEW: self._new,
            messages.SESSION_LOAD: self._load,
            messages.SESSION_RESUME: self._resume,
            messages.SESSION_LIST: self._list,
            messages.SESSION_CLOSE: self._close,
            messages.SESSION_DELETE: self._delete,
            messages.SESSION_PROMPT: self._prompt,
            messages.SESSION_SET_MODE: self._set_mode,
            messages.SESSION_SET_CONFIG_OPTION: self._set_config_option,
        }

    async def request(self, method: str, params: Raw) -> object:
        serve = self._methods.get(method)
        if serve is None:
            raise MethodNotFound(method)
        return await serve(params)

    async def notification(self, method: str, params: Raw) -> None:
        if method == messages.SESSION_CANCEL:
            opened = self._sessions.get(decode_params(params, SessionParams).session_id)
            if opened.turn is not None:
                opened.turn.cancel()

    async def _authenticate(self, params: Raw) -> Empty:
        method = decode_params(params, AuthenticateParams).method_id
        if not known_method(method):
            raise InvalidParams(f"no way to log in is called {method!r}: see authMethods")
        await self._sessions.ready()
        return Empty()

    async def _new(self, params: Raw) -> NewSession:
        asked = decode_params(params, NewSessionParams)
        opened = await self._sessions.new(_place(asked))
        options = opened.session.options
        self._sessions.introduce(opened, commands(opened.session.id))
        return NewSession(
            session_id=opened.session.id,
            config_options=offers.config_options(options),
            modes=offers.modes(options),
        )

    async def _load(self, params: Raw) -> OpenedSession:
        return await self._open(params, replay=True)

    async def _resume(self, params: Raw) -> OpenedSession:
        return await self._open(params, replay=False)

    async def _open(self, params: Raw, *, replay: bool) -> OpenedSession:
        asked = decode_params(params, OpenSessionParams)
        opened = await self._sessions.open(asked.session_id, _place(asked), replay=replay)
        options = opened.session.options
        self._sessions.introduce(opened, commands(opened.session.id))
        return OpenedSession(
            config_options=offers.config_options(options), modes=offers.modes(options)
        )

    async def _list(self, params: Raw) -> SessionList:
        asked = decode_params(params, ListSessionsParams)
        found, cursor = await self._sessions.listed(asked.cwd, asked.cursor)
        return SessionList(
            sessions=tuple(
                SessionInfo(
                    session_id=session.id,
                    cwd=session.cwd,
                    title=session.title or None,
                    updated_at=session.updated_at,
                )
                for session in found
            ),
            next_cursor=cursor,
        )

    async def _close(self, params: Raw) -> Empty:
        await self._sessions.close(decode_params(params, SessionParams).session_id)
        return Empty()

    async def _delete(self, params: Raw) -> Empty:
        await self._sessions.delete(decode_params(params, SessionParams).session_id)
        return Empty()

    async def _prompt(self, params: Raw) -> PromptResult:
        asked = decoded(params, messages.decode_prompt)
        opened = self._sessions.get(asked.session_id)
        end = await self._sessions.prompt(opened, given(asked.prompt))
        return PromptResult(stop_reason=end.stop_reason, usage=usage(end.usage), meta=_meta(end))

    async def _set_mode(self, params: Raw) -> Empty:
        asked = decode_params(params, SetModeParams)
        await self._sessions.get(asked.session_id).session.set_mode(asked.mode_id)
        return Empty()

    async def _set_config_option(self, params: Raw) -> ConfigOptions:
        asked = decode_params(params, SetConfigOptionParams)
        session = self._sessions.get(asked.session_id).session
        match asked.config_id, asked.value:
            case "model", str(model):
                await session.set_model(model)
            case "mode", str(mode):
                await session.set_mode(mode)
            case _:
                raise InvalidParams(
                    f"no option {asked.config_id!r} takes {asked.value!r}: set 'model' or 'mode' to "
                    "one of the values that configOptions names"
                )
        return ConfigOptions(config_options=offers.config_options(session.options))


def decoded(params: Raw, decode: Callable[[Raw], T]) -> T:
    """As `decode_params`, for what has a decoder of its own."""
    try:
        return decode(messages.or_empty(params))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidParams(str(error)) from error


def usage(used: Usage) -> TurnUsage:
    return TurnUsage(
        input_tokens=used.input,
        output_tokens=used.output,
        total_tokens=used.input + used.output + used.reasoning + used.cache_read + used.cache_write,
        thought_tokens=used.reasoning,
        cached_read_tokens=used.cache_read,
        cached_write_tokens=used.cache_write,
    )


def _place(asked: NewSessionParams | OpenSessionParams) -> Wanted:
    return Wanted(
        cwd=directory(asked.cwd, "cwd"),
        extra=directories(asked.additional_directories),
        servers=servers(asked.mcp_servers),
    )


def _meta(end: TurnEnd) -> Raw | UnsetType:
    """What a turn cost has no field of its own in this version."""
    if end.cost_usd is None:
        return UNSET
    return Raw(msgspec.json.encode({"go-ent": {"costUsd": float(end.cost_usd)}}))
