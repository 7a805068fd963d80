"""How far has a message got that somebody else began to write?"""

from typing import Literal, NamedTuple

Block = Literal["", "text", "reasoning", "tool"]


class Place(NamedTuple):
    """What a writer needs to know to go on: `open` is the block that has not ended yet."""

    begun: bool = False
    id: str = ""
    blocks: int = 0  # content blocks begun, the open one included
    open: Block = ""
    calls: int = 0  # tool calls begun


START = Place()
