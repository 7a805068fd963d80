"""What has a dialect to provide? Its side of the wire: requests in, replies and errors out."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Literal, Protocol

from goent.domain.types import Usage, Value
from goent.testing.conversation import Conversation, ToolCall
from goent.testing.script import Limits, Stop


class Reply(Value, frozen=True, kw_only=True):
    """A step, ready for the wire: filled in, numbered, with the usage the dialect can tell."""

    n: int
    model: str
    say: str
    think: str
    tools: tuple[ToolCall, ...]
    stop: Stop
    usage: Usage
    chunk: int
    stream_usage: bool


class Frame(Value, frozen=True, kw_only=True):
    """Bytes that go out together. Only a `piece` carries what the model said."""

    data: bytes
    kind: Literal["open", "piece", "close"]


class Refused(Exception):
    """The request is answered with an HTTP error in the vendor's shape."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.retry_after = retry_after

    @property
    def servers_fault(self) -> bool:
        return self.status >= HTTPStatus.INTERNAL_SERVER_ERROR


class Wire(Protocol):
    """One dialect."""

    endpoint: str
    tool_id: str

    def key(self, headers: Mapping[str, str]) -> str | None: ...

    def conversation(self, body: bytes) -> Conversation:
        """Parse a request; raises `Refused` if it is none."""
        ...

    def billable(self, usage: Usage) -> Usage:
        """The same tokens, in the fields that this dialect has."""
        ...

    def stream(self, reply: Reply) -> Iterator[Frame]: ...

    def whole(self, reply: Reply) -> bytes: ...

    def error(self, refused: Refused) -> bytes: ...

    def error_frame(self, refused: Refused) -> bytes:
        """The error as it comes inside a stream."""
        ...

    def limits(self, limits: Limits) -> dict[str, str]:
        """The headers that state the rate limits."""
        ...


def pieces(text: str, size: int) -> Iterator[str]:
    """Cut a text into the pieces it is streamed in."""
    return (text[start : start + size] for start in range(0, len(text), size))
