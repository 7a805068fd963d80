"""The two dialects behind one interface, and the model options of opencode.json in each.

OpenCode sends them itself; this is for calls that go-ent makes without it. What a call says for
itself goes before them.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from goent.domain.types import Dialect
from goent.providers import anthropic_requests, openai_requests
from goent.providers.anthropic_answers import (
    AnthropicReader,
    AnthropicWriter,
    read_anthropic_answer,
    write_anthropic_answer,
)
from goent.providers.model_messages import (
    STREAM_START,
    AnswerChunk,
    ModelRequest,
    StreamPosition,
    ThinkingSettings,
)
from goent.providers.openai_answers import (
    OpenAiReader,
    OpenAiWriter,
    read_openai_answer,
    write_openai_answer,
)
from goent.providers.sse import SseEvent


class HasPosition(Protocol):
    """Somebody who knows how far a message has got."""

    @property
    def place(self) -> StreamPosition: ...


class StreamReader(Protocol):
    """Reads one answer's events. Nothing makes it fail: what it cannot read is `ErrorPiece`."""

    @property
    def place(self) -> StreamPosition:
        """Where the message stands, if all that was read has been passed on."""
        ...

    def read(self, event: SseEvent) -> tuple[AnswerChunk, ...]:
        """What the event says; most often one chunk or none."""
        ...


class StreamWriter(Protocol):
    """Writes one answer as the vendor's stream would be."""

    def write(self, chunk: AnswerChunk) -> bytes:
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
        self, model: str, *, after: HasPosition | None = None, tell_usage: bool = True
    ) -> StreamWriter:
        """A new stream; or the rest of the message that has got as far as `after`."""
        ...

    def read_answer(self, body: bytes) -> tuple[AnswerChunk, ...]:
        """A plain answer; whatever else came instead is `ErrorPiece`."""
        ...

    def write_answer(self, model: str, chunks: Iterable[AnswerChunk]) -> bytes:
        """All of the chunks as one plain answer."""
        ...


class AnthropicCodec:
    """Messages, both directions."""

    path = "messages"
    headers = (
        (b"content-type", b"application/json"),
        (b"anthropic-version", b"2023-06-01"),
    )

    def encode(self, request: ModelRequest) -> bytes:
        return anthropic_requests.encode_request(request)

    def decode(self, body: bytes) -> ModelRequest:
        return anthropic_requests.decode_request(body)

    def reader(self) -> AnthropicReader:
        return AnthropicReader()

    def writer(
        self, model: str, *, after: HasPosition | None = None, tell_usage: bool = True
    ) -> AnthropicWriter:
        return AnthropicWriter(model, after=after.place if after else STREAM_START)

    def read_answer(self, body: bytes) -> tuple[AnswerChunk, ...]:
        return read_anthropic_answer(body)

    def write_answer(self, model: str, chunks: Iterable[AnswerChunk]) -> bytes:
        return write_anthropic_answer(model, chunks)


class OpenAiCodec:
    """Chat Completions, both directions."""

    path = "chat/completions"
    headers = ((b"content-type", b"application/json"),)

    def encode(self, request: ModelRequest) -> bytes:
        return openai_requests.encode_request(request)

    def decode(self, body: bytes) -> ModelRequest:
        return openai_requests.decode_request(body)

    def reader(self) -> OpenAiReader:
        return OpenAiReader()

    def writer(
        self, model: str, *, after: HasPosition | None = None, tell_usage: bool = True
    ) -> OpenAiWriter:
        return OpenAiWriter(
            model, after=after.place if after else STREAM_START, tell_usage=tell_usage
        )

    def read_answer(self, body: bytes) -> tuple[AnswerChunk, ...]:
        return read_openai_answer(body)

    def write_answer(self, model: str, chunks: Iterable[AnswerChunk]) -> bytes:
        return write_openai_answer(model, chunks)


def codec_for(dialect: Dialect) -> Codec:
    return _CODECS[dialect]


_CODECS: dict[Dialect, Codec] = {"openai": OpenAiCodec(), "anthropic": AnthropicCodec()}

# The package for OpenAI's dialect renames these, keeps the last for itself, and passes on the rest.
_FIELD_NAMES: Final[Mapping[str, str]] = {
    "reasoningEffort": "reasoning_effort",
    "textVerbosity": "verbosity",
}
_PACKAGE_OPTION: Final = "strictJsonSchema"


class _ThinkingOption(Struct):
    type: str = ""
    budget: int | None = msgspec.field(default=None, name="budgetTokens")


class _AnthropicOptions(Struct):
    thinking: _ThinkingOption | None = None
    effort: str | None = None


def with_model_options(request: ModelRequest, dialect: Dialect, options: bytes) -> ModelRequest:
    """`options` is a JSON object, or nothing."""
    if not options:
        return request
    try:
        if dialect == "anthropic":
            return _with_anthropic_options(
                request, msgspec.json.decode(options, type=_AnthropicOptions)
            )
        told = msgspec.json.decode(options, type=dict[str, Raw])
    except msgspec.DecodeError:
        return request  # the package that it was written for would not know what to do with it
    others = {
        _FIELD_NAMES.get(key, key): raw.copy()
        for key, raw in told.items()
        if key != _PACKAGE_OPTION
    }
    return replace(request, extra_fields=tuple({**others, **dict(request.extra_fields)}.items()))


def _with_anthropic_options(request: ModelRequest, told: _AnthropicOptions) -> ModelRequest:
    match told.thinking:
        case _ThinkingOption(type="enabled" | "adaptive" | "disabled" as mode, budget=budget):
            thinking = request.thinking or ThinkingSettings(mode=mode, budget=budget)
        case _:
            thinking = request.thinking
    effort = request.thinking_effort or told.effort
    return replace(request, thinking=thinking, thinking_effort=effort)
