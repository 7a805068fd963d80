"""Calls the HTTP API of an OpenCode server, and decodes its replies.

`opencode serve` offers it, and `opencode acp` has the same server inside, where it has what ACP
lacks: permission rules for one session, questions of subagents, tokens and cost of a whole session,
and an abort that does not wait for its turn. Calls about a directory name it in a header.

Everything is decoded leniently: unknown fields are ignored, and a missing one has a default where
we can do without it.
"""

import mimetypes
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import quote

import anyio
import httpx2
import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from goent.domain.errors import ProtocolError
from goent.domain.settings import PermissionRule
from goent.domain.types import Usage

T = TypeVar("T")
DataT = TypeVar("DataT", bound=Struct)


def decode_leniently(raw: bytes | Raw | UnsetType | None, kind: type[DataT]) -> DataT:
    """The JSON as `kind`; an empty one where it has another shape."""
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return kind()


class ServerData(Struct, frozen=True, kw_only=True, rename={"session": "sessionID"}):
    """Something that OpenCode reports."""


class CacheTokens(ServerData, frozen=True, kw_only=True):
    """Cached tokens."""

    read: int = 0
    write: int = 0


class TokenCounts(ServerData, frozen=True, kw_only=True):
    """Tokens of a session since it began, or of one message."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: CacheTokens = CacheTokens()

    @property
    def usage(self) -> Usage:
        return Usage(
            input=self.input,
            output=self.output,
            reasoning=self.reasoning,
            cache_read=self.cache.read,
            cache_write=self.cache.write,
        )


class ServerHealth(ServerData, frozen=True, kw_only=True):
    """Whether the server is healthy, and its version."""

    healthy: bool = False
    version: str = ""


class ServerSession(ServerData, frozen=True, kw_only=True, rename={"parent": "parentID"}):
    """One session. A subagent's has a parent."""

    id: str
    directory: str = ""
    parent: str | None = None
    cost: float = 0
    tokens: TokenCounts = TokenCounts()


class SessionActivity(ServerData, frozen=True, kw_only=True):
    """`type` is busy, idle or retry. `next` is when the model is called again, in milliseconds since the epoch."""

    type: str
    attempt: int = 0
    message: str = ""
    next: float = 0


class ErrorData(ServerData, frozen=True, kw_only=True, rename={"status": "statusCode"}):
    """The provider's message and status."""

    message: str = ""
    status: int | None = None


class SessionFault(ServerData, frozen=True, kw_only=True):
    """An error, by OpenCode's name for it."""

    name: str
    data: ErrorData = ErrorData()


class MessageTime(ServerData, frozen=True, kw_only=True):
    """When a message was made and ended, in milliseconds since the epoch."""

    created: float = 0
    completed: float | None = None


class MessageInfo(
    ServerData, frozen=True, kw_only=True, rename={"parent": "parentID", "session": "sessionID"}
):
    """The head of a message; the parent of a model's is the user's that it answers."""

    id: str
    role: str
    session: str = ""
    parent: str = ""
    time: MessageTime = MessageTime()
    finish: str = ""
    error: SessionFault | None = None
    cost: float = 0
    tokens: TokenCounts = TokenCounts()


class MessagePart(
    ServerData,
    frozen=True,
    kw_only=True,
    rename={"session": "sessionID", "message": "messageID", "call": "callID"},
):
    """A part of a message; its type decides which fields it has. `state` is a tool call's."""

    id: str
    type: str
    session: str = ""
    message: str = ""
    text: str = ""
    synthetic: bool = False
    call: str = ""
    tool: str = ""
    state: Raw = Raw(b"{}")

    @property
    def call_state(self) -> "ToolState":
        return decode_leniently(self.state, ToolState)


class CallTimes(ServerData, frozen=True, kw_only=True):
    """When a tool call began and ended, in milliseconds since the epoch."""

    start: float | None = None
    end: float | None = None


class ToolState(ServerData, frozen=True, kw_only=True):
    """How far a tool call has come, and what came out of it."""

    status: str = ""
    input: Raw | UnsetType = UNSET
    title: str = ""
    output: str = ""
    error: str = ""
    time: CallTimes = CallTimes()
    metadata: Raw | UnsetType = UNSET

    @property
    def subagent(self) -> str:
        """The session of the subagent that a `task` call started."""
        return decode_leniently(self.metadata, _TaskMetadata).session


class _TaskMetadata(ServerData, frozen=True, kw_only=True, rename={"session": "sessionId"}):
    session: str = ""


class ServerMessage(ServerData, frozen=True, kw_only=True):
    """One message of a session."""

    info: MessageInfo
    parts: tuple[MessagePart, ...] = ()


class ToolReference(ServerData, frozen=True, kw_only=True, rename={"call": "callID"}):
    """The tool call that a question is about."""

    call: str = ""


class QuestionSubject(ServerData, frozen=True, kw_only=True):
    """What a question is about; each permission has its own fields."""

    command: str = ""
    filepath: str = ""
    diff: str = ""
    url: str = ""


class PendingQuestion(ServerData, frozen=True, kw_only=True):
    """An open permission question; `always` is what allowing it for good would cover."""

    id: str
    session: str
    permission: str
    patterns: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    metadata: QuestionSubject = QuestionSubject()
    tool: ToolReference | None = None


REQUEST_TIMEOUT_S = 10.0
SERVER_USER = "opencode"
HEALTH_PATHS_OF_2 = ("/api/info", "/api/health")
# "always" holds for every session of the process in that directory, other workers' too.
QuestionReply = Literal["once", "always", "reject"]


class ServerUnreachable(ProtocolError):
    """The server does not answer, or not in time."""


class ServerNotFound(ProtocolError):
    """There is no such session, message or question."""


class TurnInput(Struct, frozen=True, kw_only=True):
    """The prompt of one turn. `model` is `provider/model`; without one, the server chooses.

    `before` are texts ahead of the prompt's own; without `agent`, `system` or `variant` the server
    uses its own.
    """

    text: str
    model: str = ""
    before: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    agent: str = ""
    system: str = ""
    variant: str = ""


class OpenCodeClient:
    """One server. Every error names the method, the path and the status."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http

    @classmethod
    @asynccontextmanager
    async def at(
        cls, url: str, password: str, *, user: str = SERVER_USER
    ) -> "AsyncGenerator[OpenCodeClient]":
        async with httpx2.AsyncClient(
            base_url=url,
            auth=(user, password),
            timeout=REQUEST_TIMEOUT_S,
            trust_env=False,  # no proxy between us and our child
        ) as http:
            yield cls(http)

    async def health(self) -> ServerHealth:
        """Also of an OpenCode 2, which has it elsewhere, so that its version can be refused."""
        try:
            return _read(await self._call("GET", "/global/health"), ServerHealth)
        except ServerNotFound:
            for path in HEALTH_PATHS_OF_2:
                with suppress(ServerNotFound):
                    return _read(await self._call("GET", path), ServerHealth)
            raise

    async def is_healthy(self, patience: float) -> bool:
        with anyio.move_on_after(patience), suppress(ProtocolError):
            await self.health()
            return True
        return False

    async def create(
        self,
        directory: str,
        *,
        title: str,
        rules: Sequence[PermissionRule],
        patience: float = REQUEST_TIMEOUT_S,
    ) -> ServerSession:
        """A new session. A title saves the model call by which OpenCode would find one."""
        body = {"title": title, "permission": _rules_as_json(rules)}
        reply = await self._call(
            "POST", "/session", body=body, directory=directory, patience=patience
        )
        return _read(reply, ServerSession)

    async def set_up(self, session: str, *, title: str, rules: Sequence[PermissionRule]) -> None:
        """Set the session's title, and add permission rules to those it has."""
        body = {"title": title, "permission": _rules_as_json(rules)}
        await self._call("PATCH", _path("session", session), body=body)

    async def session(self, session: str) -> ServerSession:
        return _read(await self._call("GET", _path("session", session)), ServerSession)

    async def children(self, session: str) -> list[ServerSession]:
        reply = await self._call("GET", _path("session", session, "children"))
        return _read(reply, list[ServerSession])

    async def subagents(self, session: str) -> Sequence[ServerSession]:
        """The sessions of its subagents, however deep they are nested."""
        found: dict[str, ServerSession] = {}
        unread = [session]
        while unread:
            for child in await self.children(unread.pop()):
                if child.id not in found and child.id != session:
                    found[child.id] = child
                    unread.append(child.id)
        return tuple(found.values())

    async def messages(
        self, session: str, *, limit: int | None = None, patience: float = REQUEST_TIMEOUT_S
    ) -> list[ServerMessage]:
        """Oldest first; with a limit, the newest that many."""
        path = _path("session", session, "message")
        path = path if limit is None else f"{path}?limit={limit}"
        reply = await self._call("GET", path, patience=patience)
        return _read(reply, list[ServerMessage])

    async def last_prompt(self, session: str) -> ServerMessage | None:
        """The last message of the user; None if there is none."""
        messages = await self.messages(session, limit=1)
        if not messages or messages[-1].info.role == "user":
            return messages[-1] if messages else None
        path = _path("session", session, "message", messages[-1].info.parent)
        return _read(await self._call("GET", path), ServerMessage)

    async def prompt(self, session: str, prompt: TurnInput) -> None:
        """Begin a turn; an event reports its end."""
        body = _turn_body(prompt)
        await self._call("POST", _path("session", session, "prompt_async"), body=body)

    async def ask(self, session: str, prompt: TurnInput, *, patience: float) -> ServerMessage:
        """Take a whole turn and return its last message, which may hold an error."""
        body = _turn_body(prompt)
        path = _path("session", session, "message")
        return _read(await self._call("POST", path, body=body, patience=patience), ServerMessage)

    async def busy(self, directory: str) -> frozenset[str]:
        """The sessions there that are in a turn, also those waiting before a retry."""
        reply = await self._call("GET", "/session/status", directory=directory)
        activities = _read(reply, dict[str, SessionActivity])
        return frozenset(name for name, now in activities.items() if now.type != "idle")

    async def is_busy(self, session: str, directory: str) -> bool:
        return session in await self.busy(directory)

    async def abort(self, session: str) -> None:
        await self._call("POST", _path("session", session, "abort"))

    async def delete(self, session: str) -> None:
        await self._call("DELETE", _path("session", session))

    async def questions(self, directory: str) -> list[PendingQuestion]:
        """The open questions of all sessions there; a cancelled turn leaves its own behind."""
        reply = await self._call("GET", "/permission", directory=directory)
        return _read(reply, list[PendingQuestion])

    async def reply(
        self, question: str, reply: QuestionReply, directory: str, message: str = ""
    ) -> None:
        """Answer a question; a rejection with a message lets the turn continue."""
        path = _path("permission", question, "reply")
        body = {"reply": reply, "message": message} if message else {"reply": reply}
        await self._call("POST", path, body=body, directory=directory)

    async def dispose(self, directory: str) -> None:
        """Unload a directory, ending the turns there."""
        await self._call("POST", "/instance/dispose", directory=directory)

    def check_open(self, what: str) -> None:
        """Raises `ServerUnreachable` once the client is closed."""
        if self.http.is_closed:
            raise ServerUnreachable(f"OpenCode's server, {what}: it is gone")

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        directory: str = "",
        patience: float = REQUEST_TIMEOUT_S,
    ) -> Raw:
        self.check_open(f"{method} {path}")
        headers = directory_header(directory)
        content = None if body is None else msgspec.json.encode(body)
        if content is not None:
            headers["content-type"] = "application/json"
        try:
            reply = await self.http.request(
                method, path, content=content, headers=headers, timeout=patience
            )
        except httpx2.HTTPError as error:
            trouble = str(error) or type(error).__name__
            raise ServerUnreachable(f"OpenCode's server, {method} {path}: {trouble}") from error
        if reply.is_error:
            is_missing = reply.status_code == HTTPStatus.NOT_FOUND
            raise (ServerNotFound if is_missing else ProtocolError)(
                f"OpenCode's server, {method} {path}: {reply.status_code} {reply.text[:300]}"
            )
        return Raw(reply.content)


def directory_header(directory: str) -> dict[str, str]:
    """The header that names the directory of a call."""
    return {"x-opencode-directory": quote(directory)} if directory else {}


def _path(*steps: str) -> str:
    return "".join(f"/{quote(step, safe='')}" for step in steps)


def _rules_as_json(rules: Sequence[PermissionRule]) -> list[dict[str, str]]:
    return [
        {"permission": rule.tool, "pattern": rule.pattern, "action": rule.action} for rule in rules
    ]


def _turn_body(prompt: TurnInput) -> Mapping[str, object]:
    texts = [{"type": "text", "text": each} for each in (*prompt.before, prompt.text)]
    attached = [
        {"type": "file", "mime": _mime(path), "filename": path.name, "url": path.as_uri()}
        for path in prompt.files
    ]
    backend, _, name = prompt.model.partition("/")
    wanted = {
        "model": {"providerID": backend, "modelID": name} if prompt.model else None,
        "agent": prompt.agent,
        "system": prompt.system,
        "variant": prompt.variant,
    }
    given = {key: value for key, value in wanted.items() if value}
    return {**given, "parts": [*texts, *attached]}


def _mime(path: Path) -> str:
    """OpenCode reads text and folders itself, and passes on images and PDFs."""
    if path.is_dir():
        return "application/x-directory"
    kind = mimetypes.guess_type(path.name)[0] or ""
    return kind if kind.startswith("image/") or kind == "application/pdf" else "text/plain"


def _read(reply: Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(reply, type=kind)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"OpenCode's server answered with {error}") from error
