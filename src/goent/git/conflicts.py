"""Where do two sides of a merge not go together, in the words of the domain? Pure.

git tells by remarks and by conflict markers that name commits; here they name tasks.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from goent.domain.types import Value
from goent.domain.workspaces import Conflict, ConflictKind
from goent.git.local_config import MERGED_AS_TEXT
from goent.git.merge_tree import Remark, Trial
from goent.git.names import readable

HUNKS: Final = 8  # of one file
LINES: Final = 30  # of one side of a hunk
WIDTH: Final = 200  # characters of a line
DETAIL: Final = 600
CONFLICT: Final = "CONFLICT"
LINK_MODES: Final = frozenset({"120000", "160000"})  # a symlink, a submodule
# git's word for a conflict holds one of these; what it holds first counts.
WORDS: Final[Mapping[str, ConflictKind]] = {
    "rename": "rename",
    "directory": "rename",
    "modify/delete": "delete_modify",
    "modes": "mode",
    "submodule": "mode",
    "binary": "binary",
}
# Of several kinds at one path, the one that says the most.
RANKS: Final[tuple[ConflictKind, ...]] = ("rename", "delete_modify", "mode", "binary")


class Side(Value, frozen=True, kw_only=True):
    """One side of a merge: its commit, how it is called in hunks, and the tasks it has."""

    commit: str
    name: str
    tasks: tuple[str, ...]


class Found(Value, frozen=True, kw_only=True):
    """A conflict, and the path as git knows it."""

    path: bytes
    conflict: Conflict


Texts = Mapping[bytes, bytes]


def with_hunks(trial: Trial) -> list[bytes]:
    """The files of the trial's tree whose conflict markers are worth reading."""
    found = {
        path: None
        for path, remarks in _by_path(trial).items()
        if any("contents" in remark.word for remark in remarks)
        and _kind(trial, path, remarks) in {"hunk_conflict", "rename"}
    }
    return list(found)


def conflicts_of(trial: Trial, ours: Side, theirs: Side, texts: Texts) -> list[Found]:
    """One for each path. `texts` are the files that `with_hunks` named, as the tree has them."""
    tasks = tuple(dict.fromkeys((*ours.tasks, *theirs.tasks)))
    return [
        Found(
            path=_own_name(path, ours, theirs),
            conflict=Conflict(
                kind=_kind(trial, path, remarks),
                path=readable(_own_name(path, ours, theirs)),
                tasks=tasks,
                detail=_detail(remarks, ours, theirs),
                hunks=tuple(hunks_of(texts.get(path, b""), ours, theirs)),
            ),
        )
        for path, remarks in sorted(_by_path(trial).items())
    ]


def hunks_of(text: bytes, ours: Side, theirs: Side) -> Iterator[str]:
    """What lies between conflict markers, cut to a bound, with the sides' names."""
    label = b"|".join(re.escape(each.encode()) for each in (ours.commit, MERGED_AS_TEXT))
    opens = re.compile(rb"(<{7,}) (?:" + label + rb")(?::.*)?\r?")
    lines = iter(text.split(b"\n"))
    found = 0
    for line in lines:
        if not (opened := opens.fullmatch(line)):
            continue
        found += 1
        if found > HUNKS:
            continue
        yield _hunk(lines, len(opened[1]), ours.name, theirs.name)
    if found > HUNKS:
        yield f"({found - HUNKS} more hunks)"


def _hunk(lines: Iterator[bytes], width: int, ours: str, theirs: str) -> str:
    sides: list[list[str]] = [[f"<<<<<<< {ours}"]]
    for line in lines:
        bare = line.removesuffix(b"\r")
        if bare.startswith(b">" * width + b" "):
            break
        if bare.startswith(b"|" * width + b" "):
            sides.append(["||||||| before"])
        elif bare == b"=" * width:
            sides.append(["======="])
        else:
            sides[-1].append(_line(line))
    kept = [text for side in sides for text in _cut(side)]
    return "\n".join([*kept, f">>>>>>> {theirs}"])


def _line(line: bytes) -> str:
    text = readable(line)
    return text if len(text) <= WIDTH else f"{text[:WIDTH]}…"


def _cut(side: list[str]) -> list[str]:
    more = len(side) - 1 - LINES
    return side if more <= 0 else [*side[: LINES + 1], f"… ({more} more lines)"]


def _own_name(path: bytes, ours: Side, theirs: Side) -> bytes:
    """Without what git appends to set a file beside a folder of its name."""
    name, mark, commit = path.rpartition(b"~")
    return (
        name if mark and commit.decode(errors="replace") in {ours.commit, theirs.commit} else path
    )


def _by_path(trial: Trial) -> dict[bytes, list[Remark]]:
    found: dict[bytes, list[Remark]] = {}
    for remark in trial.remarks:
        if remark.word.startswith(CONFLICT):
            found.setdefault(remark.paths[0], []).append(remark)
    if not trial.clean and not found:  # a git that says nothing of it still lists the files
        found = {stage.path: [] for stage in trial.stages}
    return found


def _kind(trial: Trial, path: bytes, remarks: list[Remark]) -> ConflictKind:
    kinds = {_kind_of_word(remark.word) for remark in remarks}
    for kind in RANKS:
        if kind in kinds:
            return kind
    links = any(stage.path == path and stage.mode in LINK_MODES for stage in trial.stages)
    return "mode" if links else "hunk_conflict"


def _kind_of_word(word: str) -> ConflictKind:
    for part, kind in WORDS.items():
        if part in word:
            return kind
    return "hunk_conflict"


def _detail(remarks: list[Remark], ours: Side, theirs: Side) -> str:
    said = dict.fromkeys(readable(remark.text).strip() for remark in remarks)
    text = " ".join(said)
    for side in (ours, theirs):
        text = text.replace(side.commit, side.name)
    return text if len(text) <= DETAIL else f"{text[:DETAIL]}…"
