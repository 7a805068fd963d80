"""Which files does a search look at, by the folder and the pattern that the model gave?"""

import stat

from goent.agent.ports import ToolMistake
from goent.agent.tools.globs import Glob, TooManyWays, alternatives
from goent.agent.tools.places import Place, Places, kind_of, status_of, trouble

KERNELS = ("proc", "sys", "dev")  # folders of `/` that hold no files of anybody's


class Selected:
    """Tells whether a path, relative to the folder that is searched, is meant."""

    def __init__(self, pattern: str) -> None:
        try:
            ways = alternatives(pattern)
            self._glob = Glob(pattern) if pattern else None
        except TooManyWays as error:
            raise ToolMistake(str(error)) from None
        parts = [part for way in ways for part in way.split("/")]
        if ".." in parts or "\0" in pattern or "\n" in pattern:
            raise ToolMistake(f"{pattern!r} is no pattern to search by: name the folder as path")
        lasts = {way.rpartition("/")[2] for way in ways}
        self.names = () if lasts & {"", "**"} else tuple(sorted(lasts))
        self.hidden = any(part.startswith(".") and part != "." for part in parts)

    def __contains__(self, path: str) -> bool:
        return self._glob is None or self._glob.matches(path)


def searchable(places: Places, place: Place) -> bool:
    """Whether it is a folder. Raises `ToolMistake` if it cannot be searched."""
    places.again(place)
    if len(place.path.parts) > 1 and place.path.parts[1] in KERNELS:
        raise ToolMistake(f"{place.name!r} is the kernel's: there is nothing to search in")
    with trouble(place, "search"):
        status = status_of(place.path)
    if status is None:
        raise ToolMistake(f"there is no {place.name!r} to search in")
    if stat.S_ISDIR(status.st_mode):
        return True
    if not stat.S_ISREG(status.st_mode):
        raise ToolMistake(f"{place.name!r} is {kind_of(status.st_mode)}: it cannot be searched")
    return False
