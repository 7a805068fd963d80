"""Streams as bytes, and bytes as the chunks they mean."""

from collections.abc import Iterable, Sequence

import msgspec

from goent.domain.types import Dialect
from goent.providers.dialects import codec_for
from goent.providers.model_messages import AnswerChunk
from goent.providers.sse import SseEvent, SseSplitter

DIALECTS: tuple[Dialect, ...] = ("openai", "anthropic")


def event(data: object, name: str = "") -> SseEvent:
    return SseEvent(name.encode(), msgspec.json.encode(data))


def delta(**said: object) -> SseEvent:
    """One piece of OpenAI's stream."""
    return event({"choices": [{"index": 0, "delta": said, "finish_reason": None}]})


def call(**told: object) -> SseEvent:
    function = {key: told.pop(key) for key in ("name", "arguments") if key in told}
    return delta(tool_calls=[{**told, "function": function}])


def finish(reason: str) -> SseEvent:
    return event({"choices": [{"index": 0, "finish_reason": reason}]})


def start(index: int, **block: object) -> SseEvent:
    return event({"type": "content_block_start", "index": index, "content_block": block})


def piece(index: int, **said: object) -> SseEvent:
    return event({"type": "content_block_delta", "index": index, "delta": said})


def read(dialect: Dialect, *events: SseEvent) -> list[AnswerChunk]:
    reader = codec_for(dialect).reader()
    return [chunk for one in events for chunk in reader.read(one)]


def read_bytes(dialect: Dialect, *pieces: bytes) -> list[AnswerChunk]:
    splitter = SseSplitter()
    events = [found for piece in pieces for found in splitter.feed(piece)]
    return read(dialect, *events, *splitter.close())


def written(dialect: Dialect, chunks: Iterable[AnswerChunk], model: str = "m") -> bytes:
    writer = codec_for(dialect).writer(model)
    return b"".join([*(writer.write(chunk) for chunk in chunks), writer.close()])


def events_of(stream: bytes) -> Sequence[object]:
    """The data of every event but OpenAI's last word."""
    found = SseSplitter().feed(stream)
    return [msgspec.json.decode(one.data) for one in found if one.data != b"[DONE]"]
