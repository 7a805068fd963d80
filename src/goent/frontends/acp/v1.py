"""How does the first version of the protocol word what happens in a session?

Events are whole and have ids; this version tells a tool call once and then what has changed, has
no notices, and says how a turn ended in the reply to its prompt alone.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from goent.acp.content import (
    ContentBlock,
    Diff,
    Image,
    Resource,
    ResourceContents,
    ResourceLink,
    Terminal,
    Text,
    ToolCallContent,
    ToolContent,
)
from goent.acp.messages import SESSION_UPDATE
from goent.acp.updates import (
    AgentMessageChunk,
    AgentThoughtChunk,
    AnyUpdate,
    ConfigOptionUpdate,
    Cost,
    CurrentModeUpdate,
    Location,
    Plan,
    PlanEntry,
    SessionInfoUpdate,
    SessionUpdate,
    ToolCall,
    ToolCallUpdate,
    ToolFields,
    UsageUpdate,
    UserMessageChunk,
)
from goent.agent import content
from goent.agent.content import Document, Given, Link, Picture, Shown, Words
from goent.agent.events import (
    AnyAgentEvent,
    Asked,
    Noticed,
    OptionsChanged,
    PlanChanged,
    Retitled,
    Said,
    StateChanged,
    ToolCalled,
    UsageChanged,
)
from goent.agent.ports import Question
from goent.agent.session import AgentSession
from goent.frontends.acp.offers import available_commands, config_options
from goent.frontends.acp.stream import Notice
from goent.rpc.wire import mended

NOTICE = Raw(b'{"go-ent":{"notice":true}}')

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

    def said(self, event: Said) -> Notice:
        chunk = _CHUNKS[event.role](content=Text(text=event.text), message_id=event.message)
        return SESSION_UPDATE, SessionUpdate(session_id=self._id, update=chunk)

    def encode(self, event: AnyAgentEvent, session: AgentSession) -> Iterator[Notice]:
        for update in self._updates(event, session):
            yield SESSION_UPDATE, SessionUpdate(session_id=self._id, update=update)

    def _updates(self, event: AnyAgentEvent, session: AgentSession) -> Iterator[AnyUpdate]:
        match event:
            case ToolCalled():
                yield self._tool_call(event)
            case Asked():
                for part in event.given:
                    yield UserMessageChunk(content=block(part), message_id=event.message)
            case OptionsChanged():
                options = session.options
                yield ConfigOptionUpdate(config_options=config_options(options))
                if options.mode != self._mode:
                    self._mode = options.mode
                    yield CurrentModeUpdate(current_mode_id=options.mode)
            case _:
                yield from _stateless(event)

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
        make = ToolCall if new else ToolCallUpdate
        return make(
            tool_call_id=event.id,
            title=event.title,
            kind=event.kind,
            status=_STATUS.get(event.status, event.status),
            content=None if same_content else _contents(event) or None,
            locations=_locations(event.locations) or None,
            raw_input=UNSET if same_input else _whole(event.input),
            raw_output=_raw_output(event) if over else UNSET,
        )


def commands(session_id: str) -> Notice:
    """What can be typed instead of a prompt."""
    return SESSION_UPDATE, SessionUpdate(session_id=session_id, update=available_commands())


def asked(question: Question) -> ToolFields:
    """The call that a permission is wanted for."""
    return ToolFields(
        tool_call_id=question.call,
        title=question.title,
        kind=question.kind,
        status="pending",
        content=tuple(map(_content, question.shown)) or None,
        locations=_locations(question.locations) or None,
        raw_input=_whole(question.input),
    )


def block(part: Given) -> ContentBlock:
    match part:
        case Words(text=text):
            return Text(text=text)
        case Picture(data=data, media_type=media_type):
            return Image(data=data, mime_type=media_type)
        case Link(uri=uri, name=name):
            return ResourceLink(uri=uri, name=name or uri)
        case Document(uri=uri, text=text, media_type=media_type):
            contents = ResourceContents(uri=uri, text=text or "", mime_type=media_type)
            return Resource(resource=contents)


def _stateless(event: AnyAgentEvent) -> Iterator[AnyUpdate]:
    match event:
        case PlanChanged(entries=entries):
            # A cancelled entry has no word in this version: it is no longer part of the plan.
            yield Plan(
                entries=tuple(
                    PlanEntry(content=entry.text, status=entry.status)
                    for entry in entries
                    if entry.status != "cancelled"
                )
            )
        case UsageChanged(used=used, size=size, cost_usd=cost):
            money = None if cost is None else Cost(amount=float(cost), currency="USD")
            yield UsageUpdate(used=used, size=size, cost=money)
        case Retitled(title=title, updated_at=updated_at):
            yield SessionInfoUpdate(title=title, updated_at=updated_at)
        case Noticed(text=text):
            yield AgentThoughtChunk(content=Text(text=text), meta=NOTICE)
        case StateChanged() | _:
            return


def _contents(event: ToolCalled) -> tuple[ToolCallContent, ...]:
    shown = tuple(map(_content, event.shown))
    at_the_client = any(isinstance(part, content.Terminal) for part in event.shown)
    changed = any(isinstance(part, content.Diff) for part in event.shown)
    edited = changed and event.status == "completed" and event.exit is None
    if not event.output or at_the_client or edited:  # what is seen need not be told
        return shown
    return (*shown, ToolContent(content=Text(text=_fenced(event.output))))


def _content(part: Shown) -> ToolCallContent:
    match part:
        case content.Diff(path=path, new=new, old=old):
            return Diff(path=path, new_text=new, old_text=old)
        case content.Terminal(id=terminal):
            return Terminal(terminal_id=terminal)
        case Words() | Picture():
            return ToolContent(content=block(part))


def _fenced(output: str) -> str:
    """Editors show content as Markdown: output in a fence that it does not end itself."""
    fence = "```"
    while fence in output:
        fence += "`"
    return f"{fence}\n{output.rstrip()}\n{fence}"


def _locations(locations: Sequence[content.Location]) -> tuple[Location, ...]:
    return tuple(Location(path=place.path, line=place.line) for place in locations)


def _whole(raw: Raw) -> Raw:
    """As a model wrote it, but for half characters: there are clients that drop the whole line."""
    return Raw(mended(bytes(raw))) if b"\\u" in bytes(raw) else raw


def _raw_output(event: ToolCalled) -> Raw | UnsetType:
    if not event.output and event.exit is None:
        return UNSET
    told = {"output": event.output, "exitCode": event.exit}
    return Raw(
        msgspec.json.encode({key: value for key, value in told.items() if value is not None})
    )
