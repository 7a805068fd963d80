"""What does a model say that is not asked? "ok", in either dialect, for calls we answer ourselves."""

from goent.domain.types import Dialect, Usage
from goent.llm.codec import codec
from goent.llm.talk import Chunk, Stopped, TextPiece, UsageTold

OK: tuple[Chunk, ...] = (
    TextPiece(text="ok"),
    UsageTold(usage=Usage()),
    Stopped(reason="end"),
)


def canned_answer(dialect: Dialect, model: str) -> bytes:
    """The whole answer as plain JSON."""
    return codec(dialect).write_answer(model, OK)


def canned_stream(dialect: Dialect, model: str) -> bytes:
    """The whole answer as a stream, with its finish reason: without one OpenCode asks again."""
    writer = codec(dialect).writer(model)
    return b"".join((*(writer.write(chunk) for chunk in OK), writer.close()))
