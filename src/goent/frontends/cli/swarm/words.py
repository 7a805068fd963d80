"""What is meant: a command or a file of tasks, and which swarm?"""

import sys
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final

from typer.core import TyperGroup

from goent.domain.swarms import (
    SwarmList,
    SwarmResult,
    SwarmResultRequest,
    SwarmSpawnRequest,
    SwarmsRequest,
)
from goent.frontends.cli.client import LAST, Daemon, Trouble
from goent.frontends.cli.screen import complain
from goent.plain_files import NotPlain, read_plain

if TYPE_CHECKING:
    from typer._click import Context

RUN: Final = "run"
HELP: Final = ("-h", "--help")
PREFIX: Final = "s-"
STDIN: Final = "-"
MOST_BYTES: Final = 4_000_000


class FileOrCommand(TyperGroup):
    """`swarm tasks.yaml` is short for `swarm run tasks.yaml`."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        if args and not self._is_command(args[0]):
            args = [RUN, *args]
        return super().parse_args(ctx, args)

    def _is_command(self, word: str) -> bool:
        """Also one that is misspelt, unless there is such a file."""
        if word in self.commands or word in HELP:
            return True
        return bool(get_close_matches(word, self.commands)) and not Path(word).exists()


def read_task_file(name: str) -> SwarmSpawnRequest:
    """The swarm that a file asks for, or `-` for what stdin says."""
    from goent.config.task_files import read_tasks  # noqa: PLC0415 (only here is YAML read)

    if name == STDIN and sys.stdin.isatty():
        complain("reading tasks from the terminal; Ctrl-D ends it")
    try:
        written = sys.stdin.buffer.read() if name == STDIN else _bytes(Path(name))
        text = written.decode("utf-8-sig")
    except OSError as error:
        why = f"cannot read {name!r}: {error.strerror}"
        raise Trouble(f"{why}; `go-ent swarm --help` tells what else there is", 2) from None
    except UnicodeDecodeError as error:
        raise Trouble(f"{name!r} is no UTF-8 text (byte {error.start})", 2) from None
    return read_tasks(text, "stdin" if name == STDIN else name)


def _bytes(path: Path) -> bytes:
    if path.parts[:2] == ("/", "dev"):  # what the shell put there: `go-ent swarm <(make-tasks)`
        with path.open("rb") as stream:
            return stream.read(MOST_BYTES)
    try:
        return read_plain(path, MOST_BYTES)
    except NotPlain as error:
        raise Trouble(str(error), 2) from None


def find_swarm(asked: str, through: Daemon) -> str:
    """The id behind a full id, an unambiguous beginning of one, a name, or the word `last`."""
    swarms = through.call("swarm_list", SwarmsRequest(), SwarmList).swarms
    if asked == LAST:
        if not swarms:
            raise Trouble("this project has no swarms yet: `go-ent swarm TASKS.yaml` makes one", 2)
        return swarms[0].swarm_id
    ids = [swarm.swarm_id for swarm in swarms]
    if asked in ids:
        return asked
    named = [swarm.swarm_id for swarm in swarms if swarm.swarm == asked]
    if named:
        return named[0]
    found = [one for one in ids if asked and one.startswith((asked, PREFIX + asked))]
    if len(found) > 1:
        raise Trouble(f"{asked!r} may be any of {', '.join(found)}: write more of it", 2)
    return found[0] if found else asked


def result_of(swarm: str, through: Daemon) -> SwarmResult:
    """All of it: at a terminal there is room."""
    request = SwarmResultRequest(swarm_id=swarm, whole=True)
    return through.call("swarm_result", request, SwarmResult)
