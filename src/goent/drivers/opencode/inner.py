"""What does the HTTP server inside `opencode acp` offer that ACP hides?

Permission rules for one session, questions of subagents, tokens and cost of a whole session, and
an abort that does not wait for its turn. Paths about a directory need it in a header.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from typing import Literal, TypeVar

import anyio
import httpx2
import msgspec
from msgspec import Raw, Struct

from goent.domain.errors import ProtocolError
from goent.domain.settings import PermissionRule
from goent.domain.types import Usage

PATIENCE = 10.0
USER = "opencode"
Reply = Literal["once", "reject"]  # "always" would hold for other workers in the directory too

T = TypeVar("T")


class Reading(Struct, frozen=True, kw_only=True, rename={"session": "sessionID"}):
    """What OpenCode says is read leniently: fields that we do not know are its own business."""


class CacheTokens(Reading, frozen=True, kw_only=True):
    """Tokens that were cached."""

    read: int = 0
    write: int = 0


class Tokens(Reading, frozen=True, kw_only=True):
    """Tokens of a session since it began."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: CacheTokens = CacheTokens()


class SessionInfo(Reading, frozen=True, kw_only=True, rename={"parent": "parentID"}):
    """One session, as it stands now. A subagent's has a parent."""

    id: str
    directory: str = ""
    parent: str | None = None
    cost: float = 0
    tokens: Tokens = Tokens()

    @property
    def usage(self) -> Usage:
        return Usage(
            input=self.tokens.input,
            output=self.tokens.output,
            reasoning=self.tokens.reasoning,
            cache_read=self.tokens.cache.read,
            cache_write=self.tokens.cache.write,
        )

    @property
    def cost_usd(self) -> Decimal:
        return Decimal(str(self.cost))


class MessageTime(Reading, frozen=True, kw_only=True):
    """When a message was made, in milliseconds since the epoch."""

    created: float = 0


class MessageInfo(Reading, frozen=True, kw_only=True, rename={"parent": "parentID"}):
    """Whose message it is; the parent of a model's is the user's that it answers."""

    id: str
    role: str
    parent: str = ""
    time: MessageTime = MessageTime()


class Message(Reading, frozen=True, kw_only=True):
    """One message of a session."""

    info: MessageInfo


class ToolReference(Reading, frozen=True, kw_only=True, rename={"call": "callID"}):
    """The tool call that a question is about."""

    call: str = ""


class Subject(Reading, frozen=True, kw_only=True):
    """What a question says of itself; each permission has its own fields."""

    command: str = ""
    filepath: str = ""
    diff: str = ""
    url: str = ""


class Question(Reading, frozen=True, kw_only=True):
    """A permission question that nobody has answered; `always` is what a lasting yes would cover."""

    id: str
    session: str
    permission: str
    patterns: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    metadata: Subject = Subject()
    tool: ToolReference | None = None


class Inner:
    """The server of one process."""

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self.client = client

    @classmethod
    @asynccontextmanager
    async def at(cls, port: int, password: str) -> "AsyncGenerator[Inner]":
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}",
            auth=(USER, password),
            timeout=PATIENCE,
            trust_env=False,  # a proxy has no business between us and our child
        ) as client:
            yield cls(client)

    async def set_up(self, session: str, *, title: str, rules: Sequence[PermissionRule]) -> None:
        """Give the session a title and its permission rules: these are added to what it has."""
        permission = [
            {"permission": rule.tool, "pattern": rule.pattern, "action": rule.action}
            for rule in rules
        ]
        body = {"title": title, "permission": permission}
        await self._call("PATCH", f"/session/{session}", body=body)

    async def session(self, session: str) -> SessionInfo:
        return _read(await self._call("GET", f"/session/{session}"), SessionInfo)

    async def children(self, session: str) -> list[SessionInfo]:
        return _read(await self._call("GET", f"/session/{session}/children"), list[SessionInfo])

    async def last_prompt(self, session: str) -> Message | None:
        """What the session was told last; None if it has not been told anything."""
        newest = await self._call("GET", f"/session/{session}/message?limit=1")
        messages = _read(newest, list[Message])
        if not messages or messages[-1].info.role == "user":
            return messages[-1] if messages else None
        prompt = messages[-1].info.parent
        return _read(await self._call("GET", f"/session/{session}/message/{prompt}"), Message)

    async def is_healthy(self, patience: float) -> bool:
        with anyio.move_on_after(patience), suppress(ProtocolError):
            await self._call("GET", "/global/health")
            return True
        return False

    async def abort(self, session: str) -> None:
        await self._call("POST", f"/session/{session}/abort")

    async def delete(self, session: str) -> None:
        await self._call("DELETE", f"/session/{session}")

    async def questions(self, directory: str) -> list[Question]:
        """The open ones of all sessions there; a turn that was cancelled leaves its own behind."""
        reply = await self._call("GET", "/permission", directory=directory)
        return _read(reply, list[Question])

    async def reply(self, question: str, reply: Reply, directory: str) -> None:
        body = {"reply": reply}
        await self._call("POST", f"/permission/{question}/reply", body=body, directory=directory)

    async def _call(
        self, method: str, path: str, *, body: object = None, directory: str = ""
    ) -> Raw:
        headers = {"x-opencode-directory": directory} if directory else {}
        content = None if body is None else msgspec.json.encode(body)
        if content is not None:
            headers["content-type"] = "application/json"
        try:
            reply = await self.client.request(method, path, content=content, headers=headers)
        except httpx2.HTTPError as error:
            trouble = str(error) or type(error).__name__
            raise ProtocolError(f"OpenCode's server, {method} {path}: {trouble}") from error
        if reply.is_error:
            said = f"{reply.status_code} {reply.text[:300]}"
            raise ProtocolError(f"OpenCode's server, {method} {path}: {said}")
        return Raw(reply.content)


def _read(reply: Raw, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(reply, type=kind)
    except msgspec.DecodeError as error:
        raise ProtocolError(f"OpenCode's server answered with {error}") from error
