"""Fits a call to a target's dialect, and joins the answers of several targets into one.

The requested provider gets the request byte for byte. Any other gets what every vendor understands:
it would refuse another vendor's fields and signed reasoning. What is left out is reported.

A target that takes over in the middle of an answer gets a note at the end of the last message, with
the text so far and a request for the rest. A separate message would look like a new turn of the user,
and vendors disagree on what an unfinished one of the model means. Some models start again all the
same, or repeat the last words; both are removed.

In the joined answer, pieces of the first target stay as they came, if the asker speaks its dialect;
those of the next targets follow as the rest of it.
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
    "beginning of your answer:\n{so_far}\nContinue from exactly where it stops. Do not repeat any of "
    "it and do not mention the break.]"
)
LOOKAHEAD = 80  # characters of a continuation that are read before any is passed on
MIN_OVERLAP = 12  # shorter repetitions are ordinary language


def continue_request(request: ModelRequest, so_far: str) -> ModelRequest:
    """A request for the rest of an answer that broke off after `so_far`."""
    if not so_far.strip() or not request.messages:
        return request
    *before, last = request.messages
    note = MessageText(text=CONTINUATION_NOTE.format(so_far=so_far))
    match last.parts:
        case (*parts, MessageToolResult() as result):
            noted = (*parts, replace(result, parts=(*result.parts, note)))
        case _:
            noted = (*last.parts, note)
    return replace(request, messages=(*before, ChatMessage(role=last.role, parts=noted)))


class ContinuationFilter:
    """Removes from a continuation what was said before."""

    def __init__(self, so_far: str) -> None:
        self._so_far = so_far
        self._pending = ""
        self._passes_through = not so_far

    def feed(self, text: str) -> str:
        """The new part of the text; empty while that is not clear."""
        if self._passes_through:
            return text
        self._pending += text
        if self._pending.startswith(self._so_far):
            return self.close()
        may_be_a_restart = self._so_far.startswith(self._pending)
        return "" if may_be_a_restart or len(self._pending) < LOOKAHEAD else self.close()

    def close(self) -> str:
        """The new part of the text that was held back."""
        pending, self._pending, self._passes_through = self._pending, "", True
        if pending.startswith(self._so_far):
            return pending[len(self._so_far) :]
        if self._so_far.startswith(pending):
            return ""
        return pending[_overlap(self._so_far, pending) :]


def _overlap(so_far: str, following: str) -> int:
    """The number of characters at the end of the one that begin the other."""
    longest = min(len(so_far), len(following))
    for length in range(longest, MIN_OVERLAP - 1, -1):
        if so_far.endswith(following[:length]):
            return length
    return 0


# Fields that do not change the answer, or are handled elsewhere.
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
    inbound: InboundCall,
    target: CallTarget,
    *,
    so_far: str = "",
    hurry: bool = False,
    silence_s: float | None = None,
) -> ModelCall:
    """The request to send; with `so_far`, for the rest of an answer that broke off after it."""
    codec = codec_for(target.dialect)
    own = _is_same_backend(inbound, target)
    headers: Headers = inbound.headers if own else codec.headers
    if not so_far and _is_same_model(inbound, target):
        body = inbound.body
    else:
        request = codec_for(inbound.dialect).decode(inbound.body)
        request = replace(request, model=target.provider.model)
        request = continue_request(request if own else _without_vendor_fields(request), so_far)
        body = codec.encode(with_model_options(request, target.dialect, target.provider.options))
    return ModelCall(
        backend=target.provider.backend,
        dialect=target.dialect,
        method="POST",
        url=f"{target.base_url}/{codec.path}",
        headers=headers,
        body=body,
        key=target.key,
        secret_headers=target.headers,
        server=target.server,
        hurried=hurry,
        silence_s=silence_s,
    )


def describe_omissions(inbound: InboundCall, target: CallTarget) -> str:
    """What of the call this target is not sent, in words; empty if nothing."""
    if _is_same_model(inbound, target):
        return ""
    try:
        fields = msgspec.json.decode(inbound.body, type=dict[str, Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    request = codec_for(inbound.dialect).decode(inbound.body)
    names = [name for name in fields if name not in _KNOWN_FIELDS[inbound.dialect]]
    if not _is_same_backend(inbound, target):
        names += [name for name in ("reasoning_effort", "thinking") if getattr(request, name)]
        names += ["output_config.effort"] * bool(request.thinking_effort)
    without = f"without {', '.join(sorted(names))}, which it may not support" if names else ""
    wanted = request.json_answer
    if wanted and wanted.schema is None and target.dialect == "anthropic" != inbound.dialect:
        in_words = "for JSON in words, because it has no response_format json_object"
        return f"{without}, and {in_words}" if without else in_words
    return without


def _is_same_backend(inbound: InboundCall, target: CallTarget) -> bool:
    return target.provider.backend == inbound.backend and target.dialect == inbound.dialect


def _is_same_model(inbound: InboundCall, target: CallTarget) -> bool:
    return _is_same_backend(inbound, target) and target.provider.model == inbound.model


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
    """A piece of an answer: its chunks, and the event that it came as, if it can be passed on so.

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
        self._text = StringIO()  # a list of words would take ten times the memory
        self._started = False

    @property
    def text(self) -> str:
        return self._text.getvalue()

    def receiver_for(self, dialect: Dialect) -> TakePieces:
        """Takes the pieces of the next target, which come in that dialect."""
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
    """The chunk without what was said before, after text that was held back."""
    if isinstance(chunk, TextPiece):
        text, following = rest.feed(chunk.text), ()
    elif isinstance(chunk, ReasoningPiece | UsagePiece):
        return (chunk,)
    else:
        text, following = rest.close(), (chunk,)
    return (TextPiece(text=text), *following) if text else following
