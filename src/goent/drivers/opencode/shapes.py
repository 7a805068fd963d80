"""What does OpenCode's HTTP API say, as far as we read it?

Everything is read leniently: fields that we do not know are its own business, and one that is
missing has a default where we can live without it.
"""

from decimal import Decimal

from msgspec import Raw, Struct

from goent.domain.types import Usage


class Reading(Struct, frozen=True, kw_only=True, rename={"session": "sessionID"}):
    """Something that OpenCode says."""


class CacheTokens(Reading, frozen=True, kw_only=True):
    """Tokens that were cached."""

    read: int = 0
    write: int = 0


class Tokens(Reading, frozen=True, kw_only=True):
    """Tokens of a session since it began, or of one message."""

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache: CacheTokens = CacheTokens()


class Health(Reading, frozen=True, kw_only=True):
    """The server is up, and which version it is."""

    healthy: bool = False
    version: str = ""


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


class Activity(Reading, frozen=True, kw_only=True):
    """`type` is busy, idle or retry. `next` is when the model is called again, in milliseconds since the epoch."""

    type: str
    attempt: int = 0
    message: str = ""
    next: float = 0


class ErrorData(Reading, frozen=True, kw_only=True, rename={"status": "statusCode"}):
    """What the provider said."""

    message: str = ""
    status: int | None = None


class SessionFault(Reading, frozen=True, kw_only=True):
    """An error by OpenCode's name for it."""

    name: str
    data: ErrorData = ErrorData()


class MessageTime(Reading, frozen=True, kw_only=True):
    """When a message was made and ended, in milliseconds since the epoch."""

    created: float = 0
    completed: float | None = None


class MessageInfo(
    Reading, frozen=True, kw_only=True, rename={"parent": "parentID", "session": "sessionID"}
):
    """Whose message it is; the parent of a model's is the user's that it answers."""

    id: str
    role: str
    session: str = ""
    parent: str = ""
    time: MessageTime = MessageTime()
    finish: str = ""
    error: SessionFault | None = None
    cost: float = 0
    tokens: Tokens = Tokens()


class Part(
    Reading,
    frozen=True,
    kw_only=True,
    rename={"session": "sessionID", "message": "messageID", "call": "callID"},
):
    """A piece of a message. Which fields it has follows from its type.

    `state` is a tool call's: its input, and in the end what came out of the tool.
    """

    id: str
    type: str
    session: str = ""
    message: str = ""
    text: str = ""
    synthetic: bool = False
    call: str = ""
    tool: str = ""
    state: Raw = Raw(b"{}")


class Message(Reading, frozen=True, kw_only=True):
    """One message of a session."""

    info: MessageInfo
    parts: tuple[Part, ...] = ()


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
