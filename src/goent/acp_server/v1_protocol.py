"""Speaks ACP version 1: its methods, its updates and its permission requests.

Agent events are whole and have ids. This version sends a tool call once and then its changes, has
no notices, and reports the end of a turn only in the reply to its prompt.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import count, groupby

import msgspec
from anyio.abc import TaskGroup
from msgspec import UNSET, Raw, UnsetType

from goent.acp import agent_messages, client_messages, message_parts
from goent.acp_server.client_connection import AcpNotification, ClientConnection
from goent.acp_server.client_sessions import (
    AgentHost,
    ClientSessions,
    SessionRequest,
    mcp_server_spec,
    read_prompt,
    session_directories,
    session_directory,
)
from goent.acp_server.handshake import is_auth_method
from goent.agent import agent_events
from goent.agent.agent_ports import AUTO, ModelChoice, Rejection, ToolQuestion
from goent.agent.agent_session import SLASH_COMMANDS, AgentSession, SessionOptions, TurnEnd
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
    client_messages.SessionMode(
        id="ask", name="Ask", description="Asks before it changes files or runs commands"
    ),
    client_messages.SessionMode(
        id="accept-edits",
        name="Accept edits",
        description="Changes files in the session's directories, and asks before it runs commands",
    ),
    client_messages.SessionMode(
        id="plan", name="Plan", description="Looks and plans, and changes nothing"
    ),
)


def session_modes(options: SessionOptions) -> Raw:
    """For clients that do not know options yet."""
    state = client_messages.SessionModes(
        current_mode_id=options.mode, available_modes=SESSION_MODES
    )
    return Raw(msgspec.json.encode(state))


def config_options(options: SessionOptions) -> tuple[message_parts.ConfigOption, ...]:
    model = message_parts.SelectOption(
        id=MODEL_OPTION,
        name="Model",
        category=MODEL_OPTION,
        description="Which model the agent asks",
        current_value=options.model,
        options=_model_choices(options),
    )
    mode = message_parts.SelectOption(
        id=MODE_OPTION,
        name="Mode",
        category=MODE_OPTION,
        description="What the agent may do without asking",
        current_value=options.mode,
        options=tuple(
            message_parts.OptionChoice(value=mode.id, name=mode.name, description=mode.description)
            for mode in SESSION_MODES
        ),
    )
    return (model, mode)


def commands_notification(session_id: str) -> AcpNotification:
    """The slash commands of the session."""
    commands = tuple(
        agent_messages.AvailableCommand(
            name=command.name,
            description=command.description,
            input=Raw(msgspec.json.encode({"hint": command.hint})) if command.hint else UNSET,
        )
        for command in SLASH_COMMANDS
    )
    update = agent_messages.AvailableCommandsUpdate(available_commands=commands)
    return client_messages.SESSION_UPDATE, agent_messages.SessionUpdate(
        session_id=session_id, update=update
    )


def _model_choices(options: SessionOptions) -> tuple[message_parts.OptionChoice, ...]:
    """Grouped by backend; `auto` and the current model are always among them."""
    models = (AUTO_CHOICE, *options.models)
    if all(model.id != options.model for model in models):
        models = (*models, ModelChoice(id=options.model, name=options.model))
    in_order = sorted(models, key=lambda model: model.group)  # those without a backend come first
    return tuple(
        message_parts.OptionChoice(
            group=group or DEFAULT_GROUP,
            name=group or DEFAULT_GROUP,
            options=tuple(map(_model_choice, members)),
        )
        for group, members in groupby(in_order, key=lambda model: model.group)
    )


def _model_choice(model: ModelChoice) -> message_parts.OptionChoice:
    return message_parts.OptionChoice(
        value=model.id, name=model.name or model.id, description=model.description or None
    )


NOTICE_META = Raw(b'{"go-ent":{"notice":true}}')

_CHUNKS = {
    "agent": agent_messages.AgentMessageChunk,
    "thought": agent_messages.AgentThoughtChunk,
    "user": agent_messages.UserMessageChunk,
}
_STATUS = {"running": "in_progress"}


class V1Encoder:
    """Encodes the events of one session; remembers which tool calls and mode its client knows."""

    def __init__(self, session_id: str) -> None:
        self._id = session_id
        self._calls: dict[str, agent_events.ToolCalled | None] = {}
        self._mode = ""

    def begin(self, session: AgentSession) -> None:
        self._mode = session.options.mode

    def encode_text(self, event: agent_events.Said) -> AcpNotification:
        chunk = _CHUNKS[event.role](
            content=message_parts.AcpText(text=event.text), message_id=event.message
        )
        return client_messages.SESSION_UPDATE, agent_messages.SessionUpdate(
            session_id=self._id, update=chunk
        )

    def encode(
        self, event: agent_events.AnyAgentEvent, session: AgentSession
    ) -> Iterator[AcpNotification]:
        for update in self._updates(event, session):
            yield (
                client_messages.SESSION_UPDATE,
                agent_messages.SessionUpdate(session_id=self._id, update=update),
            )

    def _updates(
        self, event: agent_events.AnyAgentEvent, session: AgentSession
    ) -> Iterator[agent_messages.AnyUpdate]:
        match event:
            case agent_events.ToolCalled():
                yield self._tool_call(event)
            case agent_events.Asked():
                for part in event.given:
                    yield agent_messages.UserMessageChunk(
                        content=content_block(part), message_id=event.message
                    )
            case agent_events.OptionsChanged():
                options = session.options
                yield agent_messages.ConfigOptionUpdate(config_options=config_options(options))
                if options.mode != self._mode:
                    self._mode = options.mode
                    yield agent_messages.CurrentModeUpdate(current_mode_id=options.mode)
            case _:
                yield from _simple_updates(event)

    def _tool_call(self, event: agent_events.ToolCalled) -> agent_messages.AnyUpdate:
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
        make = agent_messages.AcpToolCall if new else agent_messages.ToolCallUpdate
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


def question_fields(question: ToolQuestion) -> agent_messages.ToolFields:
    """The tool call that needs a permission."""
    return agent_messages.ToolFields(
        tool_call_id=question.call,
        title=question.title,
        kind=question.kind,
        status="pending",
        content=tuple(map(_content, question.shown)) or None,
        locations=_locations(question.locations) or None,
        raw_input=_mended_input(question.input),
    )


def content_block(part: agent_events.PromptPart) -> message_parts.ContentBlock:
    match part:
        case agent_events.TextPart(text=text):
            return message_parts.AcpText(text=text)
        case agent_events.ImagePart(data=data, media_type=media_type):
            return message_parts.AcpImage(data=data, mime_type=media_type)
        case agent_events.LinkPart(uri=uri, name=name):
            return message_parts.ResourceLink(uri=uri, name=name or uri)
        case agent_events.FilePart(uri=uri, text=text, media_type=media_type):
            contents = message_parts.ResourceContents(
                uri=uri, text=text or "", mime_type=media_type
            )
            return message_parts.Resource(resource=contents)


def _simple_updates(event: agent_events.AnyAgentEvent) -> Iterator[agent_messages.AnyUpdate]:
    match event:
        case agent_events.PlanChanged(entries=entries):
            # This version has no cancelled entries: they are no longer part of the plan.
            yield agent_messages.AcpPlan(
                entries=tuple(
                    agent_messages.AcpPlanEntry(content=entry.text, status=entry.status)
                    for entry in entries
                    if entry.status != "cancelled"
                )
            )
        case agent_events.UsageChanged(used=used, size=size, cost_usd=cost):
            money = (
                None
                if cost is None
                else agent_messages.SessionCost(amount=float(cost), currency="USD")
            )
            yield agent_messages.UsageUpdate(used=used, size=size, cost=money)
        case agent_events.Retitled(title=title, updated_at=updated_at):
            yield agent_messages.SessionInfoUpdate(title=title, updated_at=updated_at)
        case agent_events.Noticed(text=text):
            yield agent_messages.AgentThoughtChunk(
                content=message_parts.AcpText(text=text), meta=NOTICE_META
            )
        case agent_events.StateChanged() | _:
            return


def _contents(event: agent_events.ToolCalled) -> tuple[message_parts.ToolCallContent, ...]:
    shown = tuple(map(_content, event.shown))
    at_the_client = any(isinstance(part, agent_events.TerminalPart) for part in event.shown)
    changed = any(isinstance(part, agent_events.DiffPart) for part in event.shown)
    edited = changed and event.status == "completed" and event.exit is None
    if not event.output or at_the_client or edited:  # the user sees it already
        return shown
    return (
        *shown,
        message_parts.ToolContent(content=message_parts.AcpText(text=_fenced(event.output))),
    )


def _content(part: agent_events.DisplayPart) -> message_parts.ToolCallContent:
    match part:
        case agent_events.DiffPart(path=path, new=new, old=old):
            return message_parts.AcpDiff(path=path, new_text=new, old_text=old)
        case agent_events.TerminalPart(id=terminal):
            return message_parts.AcpTerminal(terminal_id=terminal)
        case agent_events.TextPart() | agent_events.ImagePart():
            return message_parts.ToolContent(content=content_block(part))


def _fenced(output: str) -> str:
    """Editors show content as Markdown; the fence is longer than any in the output."""
    fence = "```"
    while fence in output:
        fence += "`"
    return f"{fence}\n{output.rstrip()}\n{fence}"


def _locations(
    locations: Sequence[agent_events.FileLocation],
) -> tuple[agent_messages.ToolLocation, ...]:
    return tuple(
        agent_messages.ToolLocation(path=place.path, line=place.line) for place in locations
    )


def _mended_input(raw: Raw) -> Raw:
    """As a model wrote it, without lone surrogates: some clients drop the whole line for one."""
    return Raw(replace_lone_surrogates(bytes(raw))) if b"\\u" in bytes(raw) else raw


def _raw_output(event: agent_events.ToolCalled) -> Raw | UnsetType:
    if not event.output and event.exit is None:
        return UNSET
    output = {"output": event.output}
    if event.exit is None:
        return Raw(msgspec.json.encode(output))
    return Raw(msgspec.json.encode({**output, "exitCode": event.exit}))


MAX_ALWAYS_CHARS = 200  # of what "allow always" covers, in the label of the option
_ANSWERS: Mapping[str, PermissionAnswer] = {
    "allow_once": "allow_once",
    "allow_always": "allow_always",
    "reject": "reject",
}


class V1Adapter:
    """Asks by requests; an invalid answer counts as a rejection."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    def encoder(self, session_id: str) -> V1Encoder:
        return V1Encoder(session_id)

    async def ask(
        self, session_id: str, question: ToolQuestion
    ) -> PermissionAnswer | Rejection | None:
        request = agent_messages.PermissionRequest(
            session_id=session_id,
            tool_call=question_fields(question),
            options=_permission_options(question),
        )
        try:
            reply = await self._peer.request(
                agent_messages.REQUEST_PERMISSION, request, result=agent_messages.PermissionResponse
            )
        except ConnectionLost:
            return None
        except (RpcError, BadReply):
            return "reject"
        outcome = reply.outcome
        if not isinstance(outcome, agent_messages.OptionSelected):
            return None
        answer = _ANSWERS.get(outcome.option_id, "reject")
        words = agent_messages.decode_words(outcome.meta)
        return Rejection(message=words) if words and answer == "reject" else answer


def _permission_options(question: ToolQuestion) -> tuple[agent_messages.AcpPermissionOption, ...]:
    always = ", ".join(question.need.always or question.need.patterns)
    covered = f": {excerpt(visible_text(always), MAX_ALWAYS_CHARS)}" if always else ""
    return (
        agent_messages.AcpPermissionOption(
            option_id="allow_once", name="Allow once", kind="allow_once"
        ),
        agent_messages.AcpPermissionOption(
            option_id="allow_always", name=f"Allow for this session{covered}", kind="allow_always"
        ),
        agent_messages.AcpPermissionOption(option_id="reject", name="Reject", kind="reject_once"),
    )


class V1Connection:
    """One connection in version 1, from `initialize` on."""

    def __init__(
        self,
        peer: Peer,
        host: AgentHost,
        client: client_messages.ClientCapabilities,
        tasks: TaskGroup,
    ) -> None:
        side = ClientConnection(peer, V1Adapter(peer), client, tasks)
        self._sessions = ClientSessions(host, side, tasks)
        self._methods = {
            client_messages.AUTHENTICATE: self._authenticate,
            client_messages.SESSION_NEW: self._new,
            client_messages.SESSION_LOAD: partial(self._open, replay=True),
            client_messages.SESSION_RESUME: partial(self._open, replay=False),
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
            opened = self._sessions.get(
                decode_params(params, client_messages.SessionParams).session_id
            )
            if opened.turn is not None:
                opened.turn.cancel()

    async def _authenticate(self, params: Raw) -> client_messages.EmptyResult:
        method = decode_params(params, client_messages.AuthenticateParams).method_id
        if not is_auth_method(method):
            raise InvalidParams(f"unknown method {method!r}: use one of authMethods")
        await self._sessions.ready()
        return client_messages.EmptyResult()

    async def _new(self, params: Raw) -> client_messages.NewSession:
        asked = decode_params(params, client_messages.NewSessionParams)
        opened = await self._sessions.new(_session_request(asked))
        options = opened.session.options
        self._sessions.announce(opened, commands_notification(opened.session.id))
        return client_messages.NewSession(
            session_id=opened.session.id,
            config_options=config_options(options),
            modes=session_modes(options),
        )

    async def _open(self, params: Raw, *, replay: bool) -> client_messages.OpenedSession:
        asked = decode_params(params, client_messages.OpenSessionParams)
        opened = await self._sessions.open(asked.session_id, _session_request(asked), replay=replay)
        options = opened.session.options
        self._sessions.announce(opened, commands_notification(opened.session.id))
        return client_messages.OpenedSession(
            config_options=config_options(options), modes=session_modes(options)
        )

    async def _list(self, params: Raw) -> client_messages.SessionList:
        asked = decode_params(params, client_messages.ListSessionsParams)
        found, cursor = await self._sessions.listed(asked.cwd, asked.cursor)
        return client_messages.SessionList(
            sessions=tuple(
                client_messages.AcpSessionInfo(
                    session_id=session.id,
                    cwd=session.cwd,
                    title=session.title or None,
                    updated_at=session.updated_at,
                )
                for session in found
            ),
            next_cursor=cursor,
        )

    async def _close(self, params: Raw) -> client_messages.EmptyResult:
        await self._sessions.close(decode_params(params, client_messages.SessionParams).session_id)
        return client_messages.EmptyResult()

    async def _delete(self, params: Raw) -> client_messages.EmptyResult:
        await self._sessions.delete(decode_params(params, client_messages.SessionParams).session_id)
        return client_messages.EmptyResult()

    async def _prompt(self, params: Raw) -> client_messages.PromptResult:
        try:
            asked = client_messages.decode_prompt(client_messages.null_as_empty(params))
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidParams(str(error)) from error
        opened = self._sessions.get(asked.session_id)
        end = await self._sessions.prompt(opened, read_prompt(asked.prompt))
        return client_messages.PromptResult(
            stop_reason=end.stop_reason, usage=turn_usage(end.usage), meta=_turn_meta(end)
        )

    async def _set_mode(self, params: Raw) -> client_messages.EmptyResult:
        asked = decode_params(params, client_messages.SetModeParams)
        await self._sessions.get(asked.session_id).session.set_mode(asked.mode_id)
        return client_messages.EmptyResult()

    async def _set_config_option(self, params: Raw) -> client_messages.ConfigOptions:
        asked = decode_params(params, client_messages.SetConfigOptionParams)
        session = self._sessions.get(asked.session_id).session
        match asked.config_id, asked.value:
            case "model", str(model):
                await session.set_model(model)
            case "mode", str(mode):
                await session.set_mode(mode)
            case _:
                raise InvalidParams(
                    f"option {asked.config_id!r} cannot be {asked.value!r}: set 'model' or 'mode' to "
                    "one of the values in configOptions"
                )
        return client_messages.ConfigOptions(config_options=config_options(session.options))


def turn_usage(used: Usage) -> client_messages.TurnUsage:
    return client_messages.TurnUsage(
        input_tokens=used.input,
        output_tokens=used.output,
        total_tokens=used.input + used.output + used.reasoning + used.cache_read + used.cache_write,
        thought_tokens=used.reasoning,
        cached_read_tokens=used.cache_read,
        cached_write_tokens=used.cache_write,
    )


def _session_request(
    asked: client_messages.NewSessionParams | client_messages.OpenSessionParams,
) -> SessionRequest:
    return SessionRequest(
        cwd=session_directory(asked.cwd, "cwd"),
        extra=session_directories(asked.additional_directories),
        servers=tuple(map(mcp_server_spec, count(), asked.mcp_servers)),
    )


def _turn_meta(end: TurnEnd) -> Raw | UnsetType:
    """The cost of a turn, which has no field of its own in this version."""
    if end.cost_usd is None:
        return UNSET
    return Raw(msgspec.json.encode({"go-ent": {"costUsd": float(end.cost_usd)}}))
