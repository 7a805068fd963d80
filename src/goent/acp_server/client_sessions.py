"""The sessions one connection has open, their turns, and the prompts a client sends them."""

import logging
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import anyio
import msgspec
from anyio.abc import TaskGroup
from msgspec import UNSET, Raw, Struct, UnsetType

from goent.acp.client_messages import HttpServer, StdioServer, server_transport
from goent.acp.message_parts import (
    AcpAudio,
    AcpImage,
    AcpText,
    ContentBlock,
    Resource,
    ResourceContents,
    ResourceLink,
    UnknownBlock,
)
from goent.acp_server.client_connection import AcpNotification, ClientConnection, EventStream
from goent.agent.agent_events import FilePart, ImagePart, LinkPart, PromptPart, TextPart
from goent.agent.agent_ports import McpServerSpec, SessionBusy, UnknownSession
from goent.agent.agent_session import AgentSession, TurnEnd
from goent.agent.coding_agent import CodingAgent, SessionSummary
from goent.domain.errors import EnvironmentTrouble, GoentError
from goent.domain.types import Usage, Value
from goent.rpc.json_rpc import InvalidParams


def read_prompt(blocks: Sequence[ContentBlock]) -> tuple[PromptPart, ...]:
    """Raises `InvalidParams` for content that the agent cannot use."""
    if not blocks:
        raise InvalidParams("the prompt is empty: send at least one block of text")
    return tuple(_prompt_part(block) for block in blocks)


def _prompt_part(block: ContentBlock) -> PromptPart:
    match block:
        case AcpText(text=text):
            return TextPart(text=text)
        case AcpImage(data=data, mime_type=media_type):
            return _image_part(data, media_type)
        case ResourceLink(uri=uri, name=name):
            return LinkPart(uri=uri, name=name)
        case Resource(resource=contents):
            return _file_part(contents)
        case AcpAudio():
            raise InvalidParams("audio is not supported: send a transcript as text")
        case UnknownBlock(kind=kind):
            raise InvalidParams(
                f"content of type {kind!r} is not supported: send text, image, resource_link or resource"
            )


def _file_part(contents: ResourceContents) -> PromptPart:
    media_type = contents.mime_type
    if contents.blob is not None and media_type is not None and media_type.startswith("image/"):
        return _image_part(contents.blob, media_type)
    return FilePart(uri=contents.uri, text=contents.text, media_type=media_type)


def _image_part(data: str, media_type: str) -> ImagePart:
    if not media_type.startswith("image/"):
        raise InvalidParams(f"{media_type!r} is not an image type, such as 'image/png'")
    try:
        b64decode(data, validate=True)
    except (NotBase64, ValueError) as error:
        raise InvalidParams(f"the {media_type} image is not base64: {error}") from error
    return ImagePart(media_type=media_type, data=data)


def session_directory(path: str, field: str) -> Path:
    """Raises `InvalidParams` if no session can work there."""
    folder = Path(path)
    if not folder.is_absolute():
        raise InvalidParams(f"{field} {path!r} is not absolute: send the whole path")
    try:
        exists = folder.is_dir()
    except (OSError, ValueError) as error:  # a name too long, or with a NUL in it
        raise InvalidParams(f"{field} {path!r} cannot be read: {error}") from error
    if not exists:
        raise InvalidParams(f"{field} {path!r} is not a directory on this machine")
    return folder


def session_directories(paths: Sequence[str] | UnsetType) -> tuple[Path, ...]:
    if paths is UNSET:
        return ()
    return tuple(session_directory(path, "additionalDirectories:") for path in paths)


def mcp_server_spec(place: int, raw: Raw) -> McpServerSpec:
    """The server at that place of `mcpServers`."""
    try:
        kind = server_transport(raw)
        if kind == "stdio":
            local = msgspec.json.decode(raw, type=StdioServer)
            return McpServerSpec(
                name=local.name,
                command=local.command,
                arguments=local.args,
                environ={pair.name: pair.value for pair in local.env},
            )
        if kind == "http":
            remote = msgspec.json.decode(raw, type=HttpServer)
            headers = {pair.name: pair.value for pair in remote.headers}
            return McpServerSpec(name=remote.name, url=remote.url, headers=headers)
    except msgspec.DecodeError as error:
        raise InvalidParams(f"mcpServers[{place}]: {error}") from error
    raise InvalidParams(f"mcpServers[{place}] is of type {kind!r}: use stdio or http")


OpenAgent = Callable[[], AbstractAsyncContextManager[CodingAgent]]


class AgentHost:
    """Opens the agent when it is first needed, in a task of its own, and closes it there.

    Until then, the process opens no file and reads no key: an editor may only want to know who we are.
    """

    def __init__(self, open_agent: OpenAgent, tasks: TaskGroup) -> None:
        self._open_agent = open_agent
        self._tasks = tasks
        self._attempt: _OpenAttempt | None = None
        self._over = anyio.Event()

    async def get(self) -> CodingAgent:
        """Raises what opening it raised; the next call tries again."""
        if self._attempt is None:
            self._attempt = _OpenAttempt()
            self._tasks.start_soon(self._keep, self._attempt)
        return await self._attempt.agent()

    def close(self) -> None:
        """The agent ends, and its sessions with it."""
        self._over.set()

    async def _keep(self, attempt: "_OpenAttempt") -> None:
        try:
            async with self._open_agent() as agent:
                attempt.settle(agent)
                await self._over.wait()
        except Exception as error:
            if attempt.settled.is_set():
                raise
            self._attempt = None
            attempt.settle(_unwrapped_error(error))


class _OpenAttempt:
    def __init__(self) -> None:
        self.settled = anyio.Event()
        self._outcome: CodingAgent | Exception | None = None

    def settle(self, outcome: CodingAgent | Exception) -> None:
        self._outcome = outcome
        self.settled.set()

    async def agent(self) -> CodingAgent:
        await self.settled.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def _unwrapped_error(error: Exception) -> Exception:
    """The error itself, out of the groups of the tasks it passed through."""
    match error:
        case ExceptionGroup(exceptions=(Exception() as only,)):
            return _unwrapped_error(only)
        case OSError():
            return EnvironmentTrouble(str(error))
        case _:
            return error


CANCEL_GRACE_S = 10.0  # for a cancelled turn to end by itself

CANCELLED_TURN = TurnEnd(stop_reason="cancelled", text="", usage=Usage(), cost_usd=None)


class ClientTurn:
    """One turn, in a task of its own, so that a dropped request does not break it off."""

    def __init__(
        self, session: AgentSession, stream: EventStream, given: Sequence[PromptPart]
    ) -> None:
        self._session = session
        self._stream = stream
        self._given = given
        self._scope = anyio.CancelScope()
        self._cancelled = False
        self._outcome: TurnEnd | Exception = CANCELLED_TURN
        self.ended = anyio.Event()

    async def run(self) -> None:
        """Sets `ended` when the session is free again and all events are on their way."""
        try:
            try:
                with self._scope:
                    if not self._cancelled:
                        self._outcome = await self._session.prompt(self._given)
            except Exception as error:  # noqa: BLE001 (raised by `end`)
                self._outcome = error
            await self._stream.flushed()
        finally:
            self.ended.set()

    def cancel(self) -> None:
        """May be called at any moment, even before the turn has begun, and more than once."""
        if not self._cancelled:
            self._cancelled = True
            self._scope.deadline = anyio.current_time() + CANCEL_GRACE_S
        self._session.cancel()

    def end(self) -> TurnEnd:
        """The result; failures of a cancelled turn are not errors."""
        if isinstance(self._outcome, TurnEnd):
            return self._outcome
        if self._cancelled:
            if not isinstance(self._outcome, GoentError):
                _log.error("a cancelled turn failed", exc_info=self._outcome)
            return CANCELLED_TURN
        raise self._outcome

    def text(self) -> str:
        """All text of the turn, however it ended."""
        return self._outcome.text if isinstance(self._outcome, TurnEnd) else ""


_log = logging.getLogger(__name__)


class ClientSession(Struct, kw_only=True):
    """A session that the client knows."""

    session: AgentSession
    stream: EventStream
    turn: ClientTurn | None = None
    closing: bool = False


class SessionRequest(Value, frozen=True, kw_only=True):
    """The directories of a session, and the MCP servers it can use."""

    cwd: Path
    extra: Sequence[Path] = ()
    servers: Sequence[McpServerSpec] = ()


class ClientSessions:
    """The open sessions of one connection, for every version of the protocol."""

    def __init__(self, host: AgentHost, client: ClientConnection, tasks: TaskGroup) -> None:
        self._host = host
        self._client = client
        self._tasks = tasks
        self._open: dict[str, ClientSession] = {}
        self._opening: set[str] = set()

    async def ready(self) -> None:
        await (await self._host.get()).ready()

    async def new(self, place: SessionRequest, *, model: str | None = None) -> ClientSession:
        """Sends no events until `announce`."""
        agent = await self._host.get()
        with self._client.expecting_session():
            session = await agent.new(
                self._client, place.cwd, extra=place.extra, servers=place.servers, model=model
            )
            stream = self._client.stream(session.id)
        opened = self._open[session.id] = ClientSession(session=session, stream=stream)
        return opened

    async def open(self, session_id: str, place: SessionRequest, *, replay: bool) -> ClientSession:
        """Opens a stored session. Its history is sent now, its events after `announce`."""
        known = self._open.get(session_id)
        if session_id in self._opening or (known is not None and (known.turn or known.closing)):
            raise SessionBusy(
                f"session {session_id!r} is busy, or being opened or closed: wait for it"
            )
        self._opening.add(session_id)
        self._client.forget(session_id)
        try:
            agent = await self._host.get()
            stream = self._client.stream(session_id)
            session = await agent.open(
                self._client, session_id, place.cwd, extra=place.extra, servers=place.servers
            )
            opened = self._open[session_id] = ClientSession(session=session, stream=stream)
            if replay:
                for event in session.history():
                    await stream.replay(event, session)
            return opened  # noqa: TRY300 (an `else` would part it from what it belongs to)
        except BaseException:
            if self._open.pop(session_id, None) is not None:
                await self._end(session_id)
            self._client.forget(session_id)
            raise
        finally:
            self._opening.discard(session_id)

    def announce(self, opened: ClientSession, *first: AcpNotification) -> None:
        """Lets the session send events. Must be called in the same step that returns the reply."""
        opened.stream.release(opened.session)
        self._tasks.start_soon(self._greet, opened, first)

    def get(self, session_id: str) -> ClientSession:
        opened = self._open.get(session_id)
        if opened is None or opened.closing or session_id in self._opening:
            raise UnknownSession(
                f"session not found: {session_id!r} is not open in this connection; "
                "load or resume it, or make a new one"
            )
        return opened

    async def prompt(self, opened: ClientSession, given: Sequence[PromptPart]) -> TurnEnd:
        """Takes a turn. If the request is dropped, the turn ends as cancelled before this returns."""
        if opened.turn is not None:
            raise SessionBusy(
                f"session {opened.session.id!r} is busy with a turn: wait for its end, or cancel it"
            )
        turn = opened.turn = ClientTurn(opened.session, opened.stream, given)
        self._tasks.start_soon(self._take, opened, turn)
        try:
            await turn.ended.wait()
        except anyio.get_cancelled_exc_class():
            # Not raised: the reply to the request is the end of its turn.
            turn.cancel()
            with anyio.move_on_after(CANCEL_GRACE_S, shield=True):
                await turn.ended.wait()
        return turn.end()

    async def close(self, session_id: str) -> None:
        opened = self.get(session_id)
        opened.closing = True
        try:
            if opened.turn is not None:
                opened.turn.cancel()
                with anyio.move_on_after(2 * CANCEL_GRACE_S, shield=True):
                    await opened.turn.ended.wait()
            await self._end(session_id)
        finally:
            del self._open[session_id]
            self._client.forget(session_id)

    async def delete(self, session_id: str) -> None:
        if session_id in self._open:
            await self.close(session_id)
        await (await self._host.get()).delete(session_id)

    async def listed(
        self, cwd: str | None, cursor: str | None
    ) -> tuple[Sequence[SessionSummary], str | None]:
        return await (await self._host.get()).list_page(cwd=cwd, cursor=cursor)

    async def _end(self, session_id: str) -> None:
        """Ends the session even if the client no longer waits; an ended one is no error."""
        with anyio.move_on_after(2 * CANCEL_GRACE_S, shield=True), suppress(UnknownSession):
            await (await self._host.get()).close(session_id)

    async def _take(self, opened: ClientSession, turn: ClientTurn) -> None:
        try:
            await turn.run()
        finally:
            opened.turn = None

    async def _greet(self, opened: ClientSession, first: Sequence[AcpNotification]) -> None:
        try:
            await opened.stream.flushed()
            for notice in first:
                self._client.post(notice)
            await opened.session.greet()
        except Exception:  # noqa: BLE001 (the session works, only its notices are lost)
            _log.exception("cannot send the first notices of session %r", opened.session.id)
