"""What is said of an answer that is none?"""

from goent.llm.errors import LONGEST, error_words
from goent.llm.talk import Broken, Chunk, Stopped, ToolPiece, UsageTold


def told_error(data: bytes) -> Broken:
    """An error as its vendor put it."""
    words = error_words(data)
    return Broken(message=words.message, kind=words.kind or words.code)


def not_understood(data: bytes, error: Exception) -> Broken:
    shown = data[:LONGEST].decode(errors="replace")
    return Broken(message=f"no answer of this dialect ({error}): {shown!r}", kind="malformed")


def ended(chunks: tuple[Chunk, ...], body: bytes) -> tuple[Chunk, ...]:
    """A plain answer is whole, so it has an end; if it says nothing at all, it is none."""
    if any(isinstance(chunk, Stopped | Broken) for chunk in chunks):
        return chunks
    if all(isinstance(chunk, UsageTold) for chunk in chunks):
        return *chunks, not_understood(body, ValueError("there is nothing in it"))
    calls = any(isinstance(chunk, ToolPiece) for chunk in chunks)
    return *chunks, Stopped(reason="tool_calls" if calls else "end")
