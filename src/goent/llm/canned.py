"""What does a model say that is not asked? "ok", in either dialect, for calls we answer ourselves."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from goent.domain.types import Dialect

ID = "goent-warm"
TEXT = "ok"

_NO_TOKENS = {
    "openai": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    "anthropic": {"input_tokens": 0, "output_tokens": 0},
}


def canned_answer(dialect: Dialect, model: str) -> bytes:
    """The whole answer as plain JSON."""
    if dialect == "anthropic":
        return msgspec.json.encode(_anthropic_message(model, TEXT, "end_turn"))
    message = {"role": "assistant", "content": TEXT}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return msgspec.json.encode(_openai(model, "chat.completion", [choice], usage=True))


def canned_stream(dialect: Dialect, model: str) -> bytes:
    """The whole answer as a stream, with its finish reason: without one OpenCode asks again."""
    if dialect == "anthropic":
        return b"".join(
            b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), msgspec.json.encode(event))
            for event in _anthropic_events(model)
        )
    chunks = (msgspec.json.encode(chunk) for chunk in _openai_chunks(model))
    return b"".join(b"data: %s\n\n" % data for data in (*chunks, b"[DONE]"))


def _openai_chunks(model: str) -> Iterable[Mapping[str, object]]:
    kind = "chat.completion.chunk"
    said = {"index": 0, "delta": {"role": "assistant", "content": TEXT}, "finish_reason": None}
    yield _openai(model, kind, [said])
    yield _openai(model, kind, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
    yield _openai(model, kind, [], usage=True)


def _openai(
    model: str, kind: str, choices: Sequence[Mapping[str, object]], *, usage: bool = False
) -> Mapping[str, object]:
    body = {"id": ID, "object": kind, "created": 0, "model": model, "choices": choices}
    return {**body, "usage": _NO_TOKENS["openai"]} if usage else body


def _anthropic_events(model: str) -> Iterable[Mapping[str, object]]:
    yield {"type": "message_start", "message": _anthropic_message(model, None, None)}
    block = {"type": "text", "text": ""}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    delta = {"type": "text_delta", "text": TEXT}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": _NO_TOKENS["anthropic"]}
    yield {"type": "message_stop"}


def _anthropic_message(model: str, text: str | None, stop: str | None) -> Mapping[str, object]:
    return {
        "id": ID,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [{"type": "text", "text": text}] if text else [],
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _NO_TOKENS["anthropic"],
    }
