"""How does one read and write a vendor's words? `codec(dialect)`, and what every codec can do."""

from collections.abc import Iterable
from typing import Protocol

from goent.domain.types import Dialect
from goent.llm.anthropic import AnthropicCodec
from goent.llm.openai import OpenAiCodec
from goent.llm.place import Place
from goent.llm.sse import SseEvent
from goent.llm.talk import Chunk, ModelRequest


class Placed(Protocol):
    """Somebody who knows how far a message has got."""

    @property
    def place(self) -> Place: ...


class StreamReader(Protocol):
    """Reads one answer's events. Nothing makes it fail: what it cannot read is `Broken`."""

    @property
    def place(self) -> Place:
        """Where the message stands, if all that was read has been passed on."""
        ...

    def read(self, event: SseEvent) -> tuple[Chunk, ...]:
        """What the event says; most often one chunk or none."""
        ...


class StreamWriter(Protocol):
    """Writes one answer as the vendor's stream would be."""

    def write(self, chunk: Chunk) -> bytes:
        """What is to be sent now: nothing, as long as a tool call has no name."""
        ...

    def close(self) -> bytes:
        """The end: the finish reason, the usage, the vendor's last event."""
        ...


class Codec(Protocol):
    """One dialect, both directions."""

    path: str  # below the base URL
    headers: tuple[tuple[bytes, bytes], ...]  # that a request must have, the key excepted

    def encode(self, request: ModelRequest) -> bytes:
        """The request's body. What this vendor would refuse is mended or left out."""
        ...

    def decode(self, body: bytes) -> ModelRequest:
        """What a client asks; `RequestError` if the body is no request of this dialect."""
        ...

    def reader(self) -> StreamReader: ...

    def writer(
        self, model: str, *, after: Placed | None = None, tell_usage: bool = True
    ) -> StreamWriter:
        """A new stream; or the rest of the message that has got as far as `after`."""
        ...

    def read_answer(self, body: bytes) -> tuple[Chunk, ...]:
        """A plain answer; whatever else came instead is `Broken`."""
        ...

    def write_answer(self, model: str, chunks: Iterable[Chunk]) -> bytes:
        """All of the chunks as one plain answer."""
        ...


def codec(dialect: Dialect) -> Codec:
    return _CODECS[dialect]


_CODECS: dict[Dialect, Codec] = {"openai": OpenAiCodec(), "anthropic": AnthropicCodec()}
