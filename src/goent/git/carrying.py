"""Which untracked files does the user want a worker to have, and how do they get there?

They are copied, never linked: whatever the worker does to them, the user's own stay as they are.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path

from goent.domain.errors import RequestError
from goent.git.repository import Checkout


def check_carried(carry: Sequence[str], found: Checkout) -> None:
    """Raise for what is not there, or not in the checkout."""
    if carry and found.bare:
        raise RequestError(
            f"carry {carry[0]!r}: the bare repository {str(found.top)!r} has no untracked files"
        )
    check_there(carry, found.top)


def check_there(carry: Sequence[str], top: Path) -> None:
    """Raise for what is not in the folder."""
    for name in carry:
        path = top / name
        parts = Path(name).parts
        if not parts or Path(name).is_absolute() or ".." in parts or ".git" in parts:
            raise RequestError(
                f"carry {name!r} is not a path from the top of the checkout {str(top)!r}"
            )
        if not _exists(path):
            raise RequestError(f"carry {name!r} does not exist in {str(top)!r}")
        if not path.resolve().is_relative_to(top):
            raise RequestError(f"carry {name!r} leads out of {str(top)!r}: only what is in it goes")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # e.g. a name that is too long
        return False


def carry_into(carry: Sequence[str], origin: Path, top: Path) -> tuple[str, ...]:
    """Copy them; returns those that were not there already, as part of the commit."""
    new = [name for name in carry if not (top / name).exists()]
    for name in new:
        source, target = origin / name, top / name
        if not target.parent.resolve().is_relative_to(top):  # by a link that is committed
            raise RequestError(f"carry {name!r} leads out of the workspace {str(top)!r}")
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True)
        else:
            shutil.copy2(source, target)
    return tuple(Path(name).as_posix() for name in new)
