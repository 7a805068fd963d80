"""Speaks ACP version 1: its methods, its updates and its permission requests.

Events are whole and have ids; this version tells a tool call once and then what has changed, has
no notices, and says how a turn ended in the reply to its prompt alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

import msgspec
from anyio.abc import TaskGroup
from msgspec import UNSET, Raw, UnsetType

from goent.acp import client_messages
from goent.acp.agent_messages import (
    REQUEST_PERMISSION,
    AcpPermissionOption,
    AcpPlan,
    AcpPlanEntry,
    AcpToolCall,
    AgentMessageChunk,
    AgentThoughtChunk,
    AnyUpdate,
    AvailableCommand,
    AvailableCommandsUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    OptionSelected,
    PermissionRequest,
    PermissionResponse,
    SessionCost,
    SessionInfoUpdate,
    SessionUpdate,
    ToolCallUpdate,
    ToolFields,
    ToolLocation,
    UsageUpdate,
    UserMessageChunk,
    decode_words,
)
from goent.acp.client_messages import (
    SESSION_UPDATE,
    AcpSessionInfo,
    AuthenticateParams,
    ClientCapabilities,
    ConfigOptions,
    EmptyResult,
    ListSessionsParams,
    NewSession,
    NewSessionParams,
    OpenedSession,
    OpenSessionParams,
    PromptResult,
    SessionList,
    SessionMode,
    SessionModes,
    SessionParams,
    SetConfigOptionParams,
    SetModeParams,
    TurnUsage,
)
from goent.acp.message_parts import (
    AcpDiff,
    AcpImage,
    AcpTerminal,
    AcpText,
    ConfigOption,
    ContentBlock,
    OptionChoice,
    Resource,
    ResourceContents,
    ResourceLink,
    SelectOption,
    ToolCallContent,
    ToolContent,
)
from goent.acp_server.client_connection import AcpNotification, ClientConnection
from goent.acp_server.client_sessions import (
    AgentHost,
    ClientSessions,
    SessionRequest,
    mcp_server_specs,
    read_prompt,
    session_directories,
    session_directory,
)
from goent.acp_server.handshake import is_auth_method
from goent.agent import agent_events
from goent.agent.agent_events import (
    AnyAgentEvent,
    Asked,
    DisplayPart,
    FilePart,
    ImagePart,
    LinkPart,
    Noticed,
    OptionsChanged,
    PlanChanged,
    PromptPart,
    Retitled,
    Said,
    StateChanged,
    TextPart,
    ToolCalled,
    UsageChanged,
)
from goent.agent.agent_ports import AUTO, ModelChoice, Rejection, ToolQuestion
from goent.agent.agent_session import (
    SLASH_COMMANDS,
    AgentSession,
    SessionOptions,
    SlashCommand,
    TurnEnd,
)
from goent.domain.question_text import excerpt, visible_text
from goent.domain.types import PermissionAnswer, Usage
from goent.rpc.json_rpc import (
    BadReply,
    ConnectionLost,
    InvalidParams,
    MethodNotFound,
    RpcError,
    decode_params,
    replace_lone_surrogates,
)
from goent.rpc.rpc_peer import Peer

MODE_OPTION, MODEL_OPTION = "mode", "model"
DEFAULT_GROUP = "go-ent"
AUTO_CHOICE = ModelChoice(id=AUTO, name="Auto", description="The task decides which model is asked")

SESSION_MODES = (
    SessionMode(id="ask", name="Ask", description="Asks before it changes files or runs commands"),
    SessionMode(
        id="accept-edits",
        name="Accept edits",
        description="Changes files in the session's directories, and asks before it runs commands",
    ),
    SessionMode(id="plan", name="Plan", description="Looks and plans, and changes nothing"),
)


def session_modes(options: SessionOptions) -> Raw:
    """For clients from before there were options."""
    state = SessionModes(current_mode_id=options.mode, available_modes=SESSION_MODES)
    return Raw(msgspec.json.encode(state))


def config_options(options: SessionOptions) -> tuple[ConfigOption, ...]:
    model = SelectOption(
        id=MODEL_OPTION,
        name="Model",
        category=MODEL_OPTION,
        description="Which model the agent asks",
        current_value=options.model,
        options=_model_choices(options),
    )
    mode = SelectOption(
        id=MODE_OPTION,
        name="Mode",
        category=MODE_OPTION,
        description="What the agent may do without asking",
        current_value=options.mode,
        options=tuple(
            OptionChoice(value=mode.id, name=mode.name, description=mode.description)
            for mode in SESSION_MODES
        ),
    )
    return (model, mode)


def available_commands() -> AvailableCommandsUpdate:
    return AvailableCommandsUpdate(
        available_commands=tuple(
            AvailableCommand(
                name=command.name,
                description=command.description,
                input=_input_hint(command) if command.hint else UNSET,
            )
            for command in SLASH_COMMANDS
        )
    )


def _model_choices(options: SessionOptions) -> tuple[OptionChoice, ...]:
    """By backend. A client must find the current one among them, and the way back to `auto`."""
    models = (AUTO_CHOICE, *options.models)
    if all(model.id != options.model for model in models):
        models = (*models, ModelChoice(id=options.model, name=options.model))
    in_order = sorted(models, key=lambda model: model.group)  # those of no backend come first
    return tuple(
        OptionChoice(
            group=group or DEFAULT_GROUP,
            name=group or DEFAULT_GROUP,
            options=tuple(map(_model_choice, members)),
        )
        for group, members in groupby(in_order, key=lambda model: model.group)
    )


def _model_choice(model: ModelChoice) -> OptionChoice:
    return OptionChoice(
        value=model.id, name=model.name or model.id, description=model.description or None
    )


def _input_hint(command: SlashCommand) -> Raw:
    return Raw(msgspec.json.encode({"hint": command.hint}))


NOTICE_META = Raw(b'{"go-ent":{"notice":true}}')

_CHUNKS = {"agent": AgentMessageChunk, "thought": AgentThoughtChunk, "user": UserMessageChunk}
_STATUS = {"running": "in_progress"}


class V1Encoder:
    """Remembers what the client knows of one session: its tool calls, and its mode."""

    def __init__(self, session_id: str) -> None:
        self._id = session_id
        self._calls: dict[str, ToolCalled | None] = {}
        self._mode = ""

    def begin(self, session: AgentSession) -> None:
        self._mode = session.options.mode

    def encode_text(self, event: Said) -> AcpNotification:
        chunk = _CHUNKS[event.role](content=AcpText(text=event.text), message_id=event.message)
        return SESSION_UPDATE, SessionUpdate(session_id=self._id, update=chunk)

    def encode(self, event: AnyAgentEvent, session: AgentSession) -> Iterator[AcpNotification]:
        for update in self._updates(event, session):
            yield SESSION_UPDATE, SessionUpdate(session_id=self._id, update=update)

    def _updates(self, event: AnyAgentEvent, session: AgentSession) -> Iterator[AnyUpdate]:
        match event:
            case ToolCalled():
                yield self._tool_call(event)
            case Asked():
                for part in event.given:
                    yield UserMessageChunk(content=content_block(part), message_id=event.message)
            case OptionsChanged():
                options = session.options
                yield ConfigOptionUpdate(config_options=config_options(options))
                if options.mode != self._mode:
                    self._mode = options.mode
                    yield CurrentModeUpdate(current_mode_id=options.mode)
            case _:
                yield from _simple_updates(event)

    def _tool_call(self, event: ToolCalled) -> AnyUpdate:
        new = event.id not in self._calls
        before = self._calls.get(event.id)
        over = event.status in ("completed", "failed")
        self._calls[event.id] = None if over else event
        same_input = before is not None and before.input == event.input
        same_content = before is not None and (before.shown, before.output, before.exit) == (
            event.shown,
            event.output,
            event.exit,
        )
        make = AcpToolCall if new else ToolCallUpdate
        return make(
            tool_call_id=event.id,
            title=event.title,
            kind=event.kind,
            status=_STATUS.get(event.status, event.status),
            content=None if same_content else _contents(event) or None,
            locations=_locations(event.locations) or None,
            raw_input=UNSET if same_input else _mended_input(event.input),
            raw_output=_raw_output(event) if over else UNSET,
        )


def commands_notification(session_id: str) -> AcpNotification:
    """What can be typed instead of a prompt."""
    return SESSION_UPDATE, SessionUpdate(session_id=session_id, update=available_commands())


def question_fields(question: ToolQuestion) -> ToolFields:
    """The call that a permission is wanted for."""
    return ToolFields(
        tool_call_id=question.call,
        title=question.title,
        kind=question.kind,
        status="pending",
        content=tuple(map(_content, question.shown)) or None,
        locations=_locations(question.locations) or None,
        raw_input=_mended_input(question.input),
    )


def content_block(part: PromptPart) -> ContentBlock:
    match part:
        case TextPart(text=text):
            return AcpText(text=text)
        case ImagePart(data=data, media_type=media_type):
            return AcpImage(data=data, mime_type=media_type)
        case LinkPart(uri=uri, name=name):
            return ResourceLink(uri=uri, name=name or uri)
        case FilePart(uri=uri, text=text, media_type=media_type):
            contents = ResourceContents(uri=uri, text=text or "", mime_type=media_type)
            return Resource(resource=contents)


def _simple_updates(event: AnyAgentEvent) -> Iterator[AnyUpdate]:
    match event:
        case PlanChanged(entries=entries):
            # A cancelled entry has no word in this version: it is no longer part of the plan.
            yield AcpPlan(
                entries=tuple(
                    AcpPlanEntry(content=entry.text, status=entry.status)
                    for entry in entries
                    if entry.status != "cancelled"
                )
            )
        case UsageChanged(used=used, size=size, cost_usd=cost):
            money = None if cost is None else SessionCost(amount=float(cost), currency="USD")
            yield UsageUpdate(used=used, size=size, cost=money)
        case Retitled(title=title, updated_at=updated_at):
            yield SessionInfoUpdate(title=title, updated_at=updated_at)
        case Noticed(text=text):
            yield AgentThoughtChunk(content=AcpText(text=text), meta=NOTICE_META)
        case StateChanged() | _:
            return


def _contents(event: ToolCalled) -> tuple[ToolCallContent, ...]:
    shown = tuple(map(_content, event.shown))
    at_the_client = any(isinstance(part, agent_events.TerminalPart) for part in event.shown)
    changed = any(isinstance(part, agent_events.DiffPart) for part in event.shown)
    edited = changed and event.status == "completed" and event.exit is None
    if not event.output or at_the_client or edited:  # what is seen need not be told
        return shown
    return (*shown, ToolContent(content=AcpText(text=_fenced(event.output))))


def _content(part: DisplayPart) -> ToolCallContent:
    match part:
        case agent_events.DiffPart(path=path, new=new, old=old):
            return AcpDiff(path=path, new_text=new, old_text=old)
        case agent_events.TerminalPart(id=terminal):
            return AcpTerminal(terminal_id=terminal)
        case TextPart() | ImagePart():
            return ToolContent(content=content_block(part))


def _fenced(output: str) -> str:
    """Editors show content as Markdown: output in a fence that it does not end itself."""
    fence = "```"
    while fence in output:
        fence += "`"
    return f"{fence}\n{output.rstrip()}\n{fence}"


def _locations(locations: Sequence[agent_events.FileLocation]) -> tuple[ToolLocation, ...]:
    return tuple(ToolLocation(path=place.path, line=place.line) for place in locations)


def _mended_input(raw: Raw) -> Raw:
    """As a model wrote it, but for half characters: there are clients that drop the whole line."""
    return Raw(replace_lone_surrogates(bytes(raw))) if b"\\u" in bytes(raw) else raw


def _raw_output(event: ToolCalled) -> Raw | UnsetType:
    if not event.output and event.exit is None:
        return UNSET
    told = {"output": event.output, "exitCode": event.exit}
    return Raw(
        msgspec.json.encode({key: value for key, value in told.items() if value is not None})
    )


MAX_ALWAYS_CHARS = 200  # characters of what an always covers, in the label of an option
_ANSWERS: Mapping[str, PermissionAnswer] = {
    "allow_once": "allow_once",
    "allow_always": "allow_always",
    "reject": "reject",
}


class V1Adapter:
    """Questions are requests, and whoever answers nonsense has said no."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def encoder(self, session_id: str) -> V1Encoder:
        return V1Encoder(session_id)

    async def ask(
        self, session_id: str, question: ToolQuestion
    ) -> PermissionAnswer | Rejection | None:
        request = PermissionRequest(
            session_id=session_id,
            tool_call=question_fields(question),
            options=_permission_options(question),
        )
        try:
            reply = await self._peer.request(REQUEST_PERMISSION, request, result=PermissionResponse)
        except ConnectionLost:
            return None
        except (RpcError, BadReply):
            return "reject"
        outcome = reply.outcome
        if not isinstance(outcome, OptionSelected):
            return None
        answer = _ANSWERS.get(outcome.option_id, "reject")
        words = decode_words(outcome.meta)
        return Rejection(message=words) if words and answer == "reject" else answer


def _permission_options(question: ToolQuestion) -> tuple[AcpPermissionOption, ...]:
    always = ", ".join(question.need.always or question.need.patterns)
    return (
        AcpPermissionOption(option_id="allow_once", name="Allow once", kind="allow_once"),
        AcpPermissionOption(
            option_id="allow_always",
            name=f"Allow for this session: {excerpt(visible_text(always), MAX_ALWAYS_CHARS)}"
            if always
            else "Allow for this session",
            kind="allow_always",
        ),
        AcpPermissionOption(option_id="reject", name="Reject", kind="reject_once"),
    )


T = TypeVar("T")


class V1Connection:
    """One connection that speaks it, from `initialize` on."""

    def __init__(
        self, peer: Peer, host: AgentHost, client: ClientCapabilities, tasks: TaskGroup
    ) -> None:
        side = ClientConnection(peer, V1Adapter(peer), client, tasks)
        self._sessions = ClientSessions(host, side, tasks)
        self._methods = {
            client_messages.AUTHENTICATE: self._authenticate,
            client_messages.SESSION_NEW: self._new,
            client_messages.SESSION_LOAD: self._load,
            client_messages.SESSION_RESUME: self._resume,
            client_messages.SESSION_LIST: self._list,
            client_messages.SESSION_CLOSE: self._close,
            client_messages.SESSION_DELETE: self._delete,
            client_messages.SESSION_PROMPT: self._prompt,
            client_messages.SESSION_SET_MODE: self._set_mode,
            client_messages.SESSION_SET_CONFIG_OPTION: self._set_config_option,
        }

    async def request(self, method: str, params: Raw) -> object:
        serve = self._methods.get(method)
        if serve is None:
            raise MethodNotFound(method)
        return await serve(params)

    async def notification(self, method: str, params: Raw) -> None:
        if method == client_messages.SESSION_CANCEL:
            opened = self._sessions.get(decode_params(params, SessionParams).session_id)
            if opened.turn is not None:
                opened.turn.cancel()

    async def _authenticate(self, params: Raw) -> EmptyResult:
        method = decode_params(params, AuthenticateParams).method_id
        if not is_auth_method(method):
            raise InvalidParams(f"no way to log in is called {method!r}: see authMethods")
        await self._sessions.ready()
        return EmptyResult()

    async def _new(self, params: Raw) -> NewSession:
        asked = decode_params(params, NewSessionParams)
        opened = await self._sessions.new(_session_request(asked))
        options = opened.session.options
        self._sessions.announce(opened, commands_notification(opened.session.id))
        return NewSession(
            session_id=opened.session.id,
            config_options=config_options(options),
            modes=session_modes(options),
        )

    async def _load(self, params: Raw) -> OpenedSession:
        return await self._open(params, replay=True)

    async def _resume(self, params: Raw) -> OpenedSession:
        return await self._open(params, replay=False)

    async def _open(self, params: Raw, *, replay: bool) -> OpenedSession:
        asked = decode_params(params, OpenSessionParams)
        opened = await self._sessions.open(asked.session_id, _session_request(asked), replay=replay)
        options = opened.session.options
        self._sessions.announce(opened, commands_notification(opened.session.id))
        return OpenedSession(config_options=config_options(options), modes=session_modes(options))

    async def _list(self, params: Raw) -> SessionList:
        asked = decode_params(params, ListSessionsParams)
        found, cursor = await self._sessions.listed(asked.cwd, asked.cursor)
        return SessionList(
            sessions=tuple(
                AcpSessionInfo(
                    session_id=session.id,
                    cwd=session.cwd,
                    title=session.title or None,
                    updated_at=session.updated_at,
                )
                for session in found
            ),
            next_cursor=cursor,
        )

    async def _close(self, params: Raw) -> EmptyResult:
        await self._sessions.close(decode_params(params, SessionParams).session_id)
        return EmptyResult()

    async def _delete(self, params: Raw) -> EmptyResult:
        await self._sessions.delete(decode_params(params, SessionParams).session_id)
        return EmptyResult()

    async def _prompt(self, params: Raw) -> PromptResult:
        asked = decode_with(params, client_messages.decode_prompt)
        opened = self._sessions.get(asked.session_id)
        end = await self._sessions.prompt(opened, read_prompt(asked.prompt))
        return PromptResult(
            stop_reason=end.stop_reason, usage=turn_usage(end.usage), meta=_turn_meta(end)
        )

    async def _set_mode(self, params: Raw) -> EmptyResult:
        asked = decode_params(params, SetModeParams)
        await self._sessions.get(asked.session_id).session.set_mode(asked.mode_id)
        return EmptyResult()

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
        return ConfigOptions(config_options=config_options(session.options))


def decode_with(params: Raw, decode: Callable[[Raw], T]) -> T:
    """As `decode_params`, for what has a decoder of its own."""
    try:
        return decode(client_messages.null_as_empty(params))
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidParams(str(error)) from error


def turn_usage(used: Usage) -> TurnUsage:
    return TurnUsage(
        input_tokens=used.input,
        output_tokens=used.output,
        total_tokens=used.input + used.output + used.reasoning + used.cache_read + used.cache_write,
        thought_tokens=used.reasoning,
        cached_read_tokens=used.cache_read,
        cached_write_tokens=used.cache_write,
    )


def _session_request(asked: NewSessionParams | OpenSessionParams) -> SessionRequest:
    return SessionRequest(
        cwd=session_directory(asked.cwd, "cwd"),
        extra=session_directories(asked.additional_directories),
        servers=mcp_server_specs(asked.mcp_servers),
    )


def _turn_meta(end: TurnEnd) -> Raw | UnsetType:
    """What a turn cost has no field of its own in this version."""
    if end.cost_usd is None:
        return UNSET
    return Raw(msgspec.json.encode({"go-ent": {"costUsd": float(end.cost_usd)}}))
