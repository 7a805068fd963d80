"""What is the agent told about itself, the place it works in, and the project's own wishes?"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from platform import system

from goent.config.instructions import checkout, instructions
from goent.plain_files import read_beginning

MOST = 40_000  # characters of all of them together

SYSTEM = """\
You are go-ent's coding agent. You work in a directory of the user's with the tools you are given.

Work like a careful engineer:
- Look before you change: read the code around it, search for uses, follow the style that is there.
- Do what was asked, whole, and nothing beyond it. Ask only if the answer changes what you do.
- For work of several steps keep a todo list with TodoWrite, and keep it true.
- Calls that do not depend on each other can be made at once.
- Prefer Edit to Write for files that exist. Read a file before you change it.
- After a change, run what proves it (tests, type checks, the program), if there is something.
- A refused permission is a decision of the user's: do not try to get the same by another way.
- Never commit, push or publish unless you were asked to.

Be honest: say what you did, what you checked, and what you did not. Never claim that something \
works if you have not seen it work. Answer briefly, in the user's language, without praise."""


def system_prompt(cwd: Path, extra: Sequence[Path], instructions: str, *, now: datetime) -> str:
    """The same for every call of a session, so that providers can keep it in their cache."""
    others = f"\nOther directories: {', '.join(map(str, extra))}" if extra else ""
    place = (
        f"Working directory: {cwd}{others}\n"
        f"System: {system()}\nDate: {now.astimezone(UTC):%Y-%m-%d}"
    )
    told = f"\n\nThe project's own instructions:\n\n{instructions}" if instructions else ""
    return f"{SYSTEM}\n\n{place}{told}"


def project_instructions(cwd: Path) -> tuple[str, tuple[str, ...]]:
    """From the top of the checkout down to the directory, and why files of it are not read.

    The nearest has the last word.
    """
    folders = [cwd, *cwd.parents]
    below = folders[: folders.index(checkout(cwd)) + 1]
    found = instructions(below[::-1])
    texts = filter(None, map(_read, found.files))
    return "\n\n".join(texts)[:MOST], found.skipped


def _read(path: Path) -> str:
    try:
        text = read_beginning(path, 4 * MOST).decode(errors="replace")[:MOST].strip()
    except OSError:
        return ""
    return f"<{path.name} in {path.parent}>\n{text}\n</{path.name}>" if text else ""
