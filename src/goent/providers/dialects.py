"""The two dialects behind one interface, and the model options of opencode.json in each.

OpenCode sends those options itself; they are added here to calls that go-ent makes without it. What
a call sets itself comes before them.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from goent.domain.types import Dialect, Value
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
    """Knows how far a message has got."""

    @property
    def place(self) -> StreamPosition: ...


class StreamReader(HasPosition, Protocol):
    """Reads one answer's events. It never raises: what it cannot read becomes an `ErrorPiece`."""

    def read(self, event: SseEvent) -> tuple[AnswerChunk, ...]:
        """The chunks in the event; most often one or none."""
        ...


class StreamWriter(Protocol):
    """Writes one answer as the vendor's stream would be."""

    def write(self, chunk: AnswerChunk) -> bytes:
        """The bytes to send now: none as long as a tool call has no name."""
        ...

    def close(self) -> bytes:
        """The end: the finish reason, the usage, the vendor's last event."""
        ...


class _OpenWriter(Protocol):
    def __call__(self, model: str, /, *, after: StreamPosition) -> StreamWriter: ...


class Codec(Value, frozen=True, kw_only=True):
    """One dialect, both directions.

    `path` is below the base URL; `headers` are those a request must have beside the key. `encode`
    repairs or leaves out what the vendor would refuse; `decode` raises `RequestError`. `read_answer`
    and `write_answer` are for answers that are not streamed.
    """

    path: str
    headers: tuple[tuple[bytes, bytes], ...]
    encode: Callable[[ModelRequest], bytes]
    decode: Callable[[bytes], ModelRequest]
    reader: Callable[[], StreamReader]
    open_writer: _OpenWriter
    read_answer: Callable[[bytes], tuple[AnswerChunk, ...]]
    write_answer: Callable[[str, Iterable[AnswerChunk]], bytes]

    def writer(self, model: str, *, after: HasPosition | None = None) -> StreamWriter:
        """A new stream, or the rest of the message that has got as far as `after`."""
        return self.open_writer(model, after=after.place if after else STREAM_START)


_JSON: Final = (b"content-type", b"application/json")
_CODECS: Final[Mapping[Dialect, Codec]] = {
    "openai": Codec(
        path="chat/completions",
        headers=(_JSON,),
        encode=openai_requests.encode_request,
        decode=openai_requests.decode_request,
        reader=OpenAiReader,
        open_writer=OpenAiWriter,
        read_answer=read_openai_answer,
        write_answer=write_openai_answer,
    ),
    "anthropic": Codec(
        path="messages",
        headers=(_JSON, (b"anthropic-version", b"2023-06-01")),
        encode=anthropic_requests.encode_request,
        decode=anthropic_requests.decode_request,
        reader=AnthropicReader,
        open_writer=AnthropicWriter,
        read_answer=read_anthropic_answer,
        write_answer=write_anthropic_answer,
    ),
}


def codec_for(dialect: Dialect) -> Codec:
    return _CODECS[dialect]


# OpenCode's package for OpenAI's dialect renames these, keeps the last one, and passes on the rest.
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
    """The request with the model's own options, a JSON object or empty, where it sets nothing itself."""
    if not options:
        return request
    try:
        if dialect == "anthropic":
            return _with_anthropic_options(
                request, msgspec.json.decode(options, type=_AnthropicOptions)
            )
        options_given = msgspec.json.decode(options, type=dict[str, Raw])
    except msgspec.DecodeError:
        return request  # OpenCode's package could not use it either
    others = {
        _FIELD_NAMES.get(key, key): raw.copy()
        for key, raw in options_given.items()
        if key != _PACKAGE_OPTION
    }
    return replace(request, extra_fields=tuple({**others, **dict(request.extra_fields)}.items()))


def _with_anthropic_options(request: ModelRequest, options: _AnthropicOptions) -> ModelRequest:
    match options.thinking:
        case _ThinkingOption(type="enabled" | "adaptive" | "disabled" as mode, budget=budget):
            thinking = request.thinking or ThinkingSettings(mode=mode, budget=budget)
        case _:
            thinking = request.thinking
    effort = request.thinking_effort or options.effort
    return replace(request, thinking=thinking, thinking_effort=effort)
