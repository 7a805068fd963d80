"""Under which name does the model know a tool of an MCP server?

Both vendors take letters, digits, `_` and `-`, at most 64 of them; servers take what they like.
"""

import re
from zlib import crc32

LONGEST = 64
SERVER = 24  # characters that a long name of a server keeps
_STRANGE = re.compile(r"[^A-Za-z0-9_-]+")


class Names:
    """Gives each tool a name of its own, and the same one whenever it is asked again."""

    def __init__(self) -> None:
        self._given: dict[tuple[int, str], str] = {}
        self._taken: set[str] = set()

    def name(self, place: int, server: str, tool: str) -> str:
        """`place` tells two servers of one name apart."""
        key = (place, tool)
        if key not in self._given:
            self._given[key] = self._new(server, tool, f"{place}\0{server}\0{tool}")
            self._taken.add(self._given[key])
        return self._given[key]

    def _new(self, server: str, tool: str, whole: str) -> str:
        name = f"mcp__{_plain(server)}__{_plain(tool)}"
        if len(name) <= LONGEST and name not in self._taken:
            return name
        salt = 0
        while True:
            mark = f"_{crc32(whole.encode(errors='replace'), salt):08x}"
            front = f"mcp__{_plain(server)[:SERVER]}__{_plain(tool)}"
            name = front[: LONGEST - len(mark)] + mark
            if name not in self._taken:
                return name
            salt += 1


def _plain(word: str) -> str:
    return _STRANGE.sub("_", word).strip("_") or "x"
