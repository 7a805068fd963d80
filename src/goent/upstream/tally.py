"""How far has an answer got, and what did it cost?"""

from collections import defaultdict
from collections.abc import Sequence
from io import StringIO

import msgspec

from goent.domain.types import Usage
from goent.llm.talk import Chunk, Stopped, ToolPiece, UsageTold


class Tally:
    """Fed with the pieces of one answer."""

    def __init__(self) -> None:
        self.stopped = False
        self.usage: Usage | None = None
        self._calls: defaultdict[int, StringIO] = defaultdict(StringIO)

    def note(self, chunks: Sequence[Chunk]) -> None:
        for chunk in chunks:
            match chunk:
                case ToolPiece():
                    self._calls[chunk.index].write(chunk.arguments)
                case UsageTold():
                    self.usage = chunk.usage
                case Stopped():
                    self.stopped = True
                case _:
                    pass

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    @property
    def calls_are_whole(self) -> bool:
        return all(_is_json(arguments.getvalue()) for arguments in self._calls.values())


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return False
    return True
