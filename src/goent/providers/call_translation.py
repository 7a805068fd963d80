"""Fits a call to a target's dialect, and joins the answers of several targets into one.

It is shown what was said so far and asked for the rest, in a note at the end of the last message:
a message of its own would look like a new turn of the user's, and vendors do not agree on what an
unfinished one of the model's means. Models do not always listen: some begin again from the start,
some repeat the last words. Both are taken out.

The provider that was asked for gets the request byte for byte. Any other gets what every vendor
understands: fields of one vendor, and reasoning that another one signed, would be refused. What is
left out on the way is told.

The pieces of several targets become one answer: the first one's as they came over the wire, if the
asker speaks that dialect; those of the next as the rest of it.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from io import StringIO
from typing import Final, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from goent.domain.types import Dialect
from goent.providers import anthropic_requests, openai_requests
from goent.providers.call_plan import CallTarget, InboundCall
from goent.providers.connections import Headers, ModelCall
from goent.providers.dialects import codec_for, with_model_options
from goent.providers.model_messages import (
    STREAM_START,
    AnswerChunk,
    ChatMessage,
    MessageReasoning,
    MessageText,
    MessageToolResult,
    ModelRequest,
    ReasoningPiece,
    StreamPosition,
    TextPiece,
    UsagePiece,
)
from goent.providers.sse import SseEvent

CONTINUATION_NOTE = (
    "\n\n[The connection broke while you were answering. The reader has already received this "
    "beginning of your answer:\n{said}\nContinue from exactly where it stops. Do not repeat any of "
    "it and do not mention the break.]"
)
LOOKAHEAD = 80  # characters of a continuation that are looked at before any is shown
MIN_OVERLAP = 12  # shorter repetitions are ordinary language


def continue_request(request: ModelRequest, said: str) -> ModelRequest:
    """The same request, from the end of what was said."""
    if not said.strip() or not request.messages:
        return request
    *before, last = request.messages
    note = MessageText(text=CONTINUATION_NOTE.format(said=said))
    match last.parts:
        case (*parts, MessageToolResult() as result):
            noted = (*parts, replace(result, parts=(*result.parts, note)))
        case _:
            noted = (*last.parts, note)
    return replace(request, messages=(*before, ChatMessage(role=last.role, parts=noted)))


class ContinuationFilter:
    """Lets through of a continuation what was not said before."""

    def __init__(self, said: str) -> None:
        self._said = said
        self._pending = ""
        self._passes_through = not said

    def feed(self, text: str) -> str:
        """What of it is new; empty while that cannot be told."""
        if self._passes_through:
            return text
        self._pending += text
        if self._pending.startswith(self._said):
            return self.close()
        may_be_a_restart = self._said.startswith(self._pending)
        return "" if may_be_a_restart or len(self._pending) < LOOKAHEAD else self.close()

    def close(self) -> str:
        """Nothing more will come: what was held is told apart now."""
        held, self._pending, self._passes_through = self._pending, "", True
        if held.startswith(self._said):
            return held[len(self._said) :]
        if self._said.startswith(held):
            return ""
        return held[_overlap(self._said, held) :]


def _overlap(said: str, following: str) -> int:
    """How many characters at the end of the one begin the other."""
    longest = min(len(said), len(following))
    for length in range(longest, MIN_OVERLAP - 1, -1):
        if said.endswith(following[:length]):
            return length
    return 0


# Fields that change nothing about the answer, or go into a place of their own.
_NEUTRAL_FIELDS: Final = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    }
)
_KNOWN_FIELDS: Final[dict[Dialect, frozenset[str]]] = {
    "openai": frozenset(openai_requests.OpenAiRequest.__struct_fields__) | _NEUTRAL_FIELDS,
    "anthropic": frozenset(anthropic_requests.AnthropicRequest.__struct_fields__) | _NEUTRAL_FIELDS,
}


def build_call(
    order: InboundCall,
    target: CallTarget,
    *,
    said: str = "",
    hurry: bool = False,
    silence_s: float | None = None,
) -> ModelCall:
    """The request to send; with `said`, for the rest of an answer that broke off there."""
    theirs = codec_for(target.dialect)
    own = _is_same_backend(order, target)
    headers: Headers = order.headers if own else theirs.headers
    if not said and _is_same_model(order, target):
        body = order.body
    else:
        request = codec_for(order.dialect).decode(order.body)
        request = replace(request, model=target.provider.model)
        request = continue_request(request if own else _without_vendor_fields(request), said)
        body = theirs.encode(with_model_options(request, target.dialect, target.provider.options))
    return ModelCall(
        backend=target.provider.backend,
        dialect=target.dialect,
        method="POST",
        url=f"{target.base_url}/{theirs.path}",
        headers=headers,
        body=body,
        key=target.key,
        secret_headers=target.headers,
        server=target.server,
        hurried=hurry,
        silence_s=silence_s,
    )


def describe_omissions(order: InboundCall, target: CallTarget) -> str:
    """What the order says and this target is not told, by its names; empty if that is nothing."""
    if _is_same_model(order, target):
        return ""
    try:
        fields = msgspec.json.decode(order.body, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    request = codec_for(order.dialect).decode(order.body)
    names = [name for name in fields if name not in _KNOWN_FIELDS[order.dialect]]
    if not _is_same_backend(order, target):
        names += [name for name in ("reasoning_effort", "thinking") if getattr(request, name)]
        names += ["output_config.effort"] * bool(request.thinking_effort)
    told = f"without {', '.join(sorted(names))}, which it may not know" if names else ""
    wanted = request.json_answer
    if wanted and wanted.schema is None and target.dialect == "anthropic" != order.dialect:
        in_words = "for JSON in words, because it has no response_format json_object"
        return f"{told}, and {in_words}" if told else in_words
    return told


def _is_same_backend(order: InboundCall, target: CallTarget) -> bool:
    return target.provider.backend == order.backend and target.dialect == order.dialect


def _is_same_model(order: InboundCall, target: CallTarget) -> bool:
    return _is_same_backend(order, target) and target.provider.model == order.model


def _without_vendor_fields(request: ModelRequest) -> ModelRequest:
    return replace(
        request,
        messages=tuple(_without_reasoning(message) for message in request.messages),
        thinking=None,
        thinking_effort=None,
        reasoning_effort=None,
    )


def _without_reasoning(message: ChatMessage) -> ChatMessage:
    parts = tuple(part for part in message.parts if not isinstance(part, MessageReasoning))
    return replace(message, parts=parts)


class StreamPiece(NamedTuple):
    """A piece of an answer. `event` is how it came, if it can be passed on like that.

    `place` is how far the message has got with it, in the dialect of the event.
    """

    chunks: tuple[AnswerChunk, ...]
    event: SseEvent | None = None
    place: StreamPosition = STREAM_START


TakePieces = Callable[[Sequence[StreamPiece]], Awaitable[None]]


class JoinedAnswer:
    """One answer on its way to the asker."""

    def __init__(self, dialect: Dialect, take: TakePieces) -> None:
        self._dialect = dialect
        self._take = take
        self._text = StringIO()  # pieces of a word each would take ten times the room
        self._started = False

    @property
    def text(self) -> str:
        return self._text.getvalue()

    def receiver_for(self, dialect: Dialect) -> TakePieces:
        """Where the next target's pieces go, which come in that dialect."""
        if dialect == self._dialect and not self._started:
            return self._forward
        rest = ContinuationFilter(self.text)

        async def take(pieces: Sequence[StreamPiece]) -> None:
            chunks = tuple(
                new
                for piece in pieces
                for chunk in piece.chunks
                for new in _new_pieces(chunk, rest)
            )
            if chunks:
                await self._forward([StreamPiece(chunks)])

        return take

    async def _forward(self, pieces: Sequence[StreamPiece]) -> None:
        self._started = True
        for piece in pieces:
            for chunk in piece.chunks:
                if isinstance(chunk, TextPiece):
                    self._text.write(chunk.text)
        await self._take(pieces)


def _new_pieces(chunk: AnswerChunk, rest: ContinuationFilter) -> Iterable[AnswerChunk]:
    """The chunk without what was said before; text that was held back goes before what follows."""
    if isinstance(chunk, TextPiece):
        text, following = rest.feed(chunk.text), ()
    elif isinstance(chunk, ReasoningPiece | UsagePiece):
        return (chunk,)
    else:
        text, following = rest.close(), (chunk,)
    return (TextPiece(text=text), *following) if text else following
