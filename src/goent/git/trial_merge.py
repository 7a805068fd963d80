"""Merges commits without a checkout, and describes their conflicts.

`git merge-tree --write-tree` merges without index and checkout. With `--stdin` (from git 2.39) one
process does many merges; an older git runs once per merge. git's remarks and conflict markers name
commits; here they name tasks.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import anyio

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.domain.workspace import Conflict, ConflictKind, WorkPiece
from goent.git.git_command import Git, readable_path, shell_quoted
from goent.git.repository_config import TEXT_MERGE_LABEL

# A fixed conflict style: both sides and the base, whatever the user has configured.
MERGE_COMMAND: Final = ("-c", "merge.conflictStyle=zdiff3", "merge-tree", "--write-tree", "-z")
USAGE_ERROR: Final = 129  # git's exit code for an unknown option
TIMEOUT_S: Final = 300.0
MAX_PROCESSES: Final = 4  # in parallel
PAIRS_PER_PROCESS: Final = 32  # pairs that justify another process
CommitPair = tuple[str, str]
MAX_HUNKS: Final = 8  # per file
MAX_LINES: Final = 30  # per side of a hunk
MAX_LINE_CHARS: Final = 200  # characters of a line
MAX_DETAIL_CHARS: Final = 600
CONFLICT: Final = "CONFLICT"
LINK_MODES: Final = frozenset({"120000", "160000"})  # a symlink, a submodule
# By a part of git's keyword; the first match counts.
KINDS_BY_WORD: Final[Mapping[str, ConflictKind]] = {
    "rename": "rename",
    "directory": "rename",
    "modify/delete": "delete_modify",
    "modes": "mode",
    "submodule": "mode",
    "binary": "binary",
}
# Of several kinds at one path, the first of these.
KIND_RANKS: Final[tuple[ConflictKind, ...]] = ("rename", "delete_modify", "mode", "binary")
FileTexts = Mapping[bytes, bytes]
MAX_FILES: Final = 20
STEPS_BY_KIND: Final[Mapping[ConflictKind, str]] = {
    "hunk_conflict": "edit it to contain both changes, without markers; then `git add -- {path}`",
    "delete_modify": "`git rm -- {path}` to delete it, or edit and `git add -- {path}` to keep it",
    "rename": "choose one name: `git add -- NAME` for the one to keep, `git rm -- {path}` for the other",
    "binary": "`git checkout --ours -- {path}` (merged) or `--theirs` ({task}); then `git add -- {path}`",
    "mode": "`git checkout --ours -- {path}` (merged) or `--theirs` ({task}); then `git add -- {path}`",
}


class ConflictStage(Value, frozen=True, kw_only=True):
    """A version of an unmerged file: stage 1 is the base's, 2 ours, 3 theirs."""

    path: bytes
    mode: str
    stage: int


class MergeRemark(Value, frozen=True, kw_only=True):
    """git's remark on some paths: a stable keyword, and a sentence."""

    paths: tuple[bytes, ...]
    word: str
    text: bytes


class MergeTrial(Value, frozen=True, kw_only=True):
    """A trial merge. If it is not clean, the files in its `tree` have conflict markers."""

    clean: bool
    tree: str
    stages: tuple[ConflictStage, ...] = ()
    remarks: tuple[MergeRemark, ...] = ()


async def try_merges(
    git: Git, pairs: Sequence[CommitPair], env: Mapping[str, str]
) -> list[MergeTrial]:
    """Merge each pair of commits. Raises `GitFailed` if git cannot merge at all."""
    lanes = min(MAX_PROCESSES, os.cpu_count() or 1, 1 + len(pairs) // PAIRS_PER_PROCESS)
    found: dict[int, list[MergeTrial]] = {}
    failures: list[GoentError] = []

    async def drive(lane: int) -> None:
        try:
            found[lane] = await _try_several(git, pairs[lane::lanes], env)
        except GoentError as error:
            failures.append(error)

    async with anyio.create_task_group() as group:
        for lane in range(lanes):
            group.start_soon(drive, lane)
    if failures:
        raise failures[0]
    return [found[number % lanes][number // lanes] for number in range(len(pairs))]


async def _try_several(
    git: Git, pairs: Sequence[CommitPair], env: Mapping[str, str]
) -> list[MergeTrial]:
    if len(pairs) > 1:
        asked = "".join(f"{ours} {theirs}\n" for ours, theirs in pairs).encode()
        answer = await git.run(*MERGE_COMMAND, "--stdin", stdin=asked, env=env, timeout=TIMEOUT_S)
        if answer.exit == 0:
            return _parse_all(answer.output)
        if answer.exit != USAGE_ERROR:
            raise git.failure(answer, "merge-tree")
    return [await _try_one(git, pair, env) for pair in pairs]


async def _try_one(git: Git, pair: CommitPair, env: Mapping[str, str]) -> MergeTrial:
    answer = await git.run(*MERGE_COMMAND, *pair, env=env)
    if answer.exit not in {0, 1}:
        raise git.failure(answer, "merge-tree", *pair)
    fields = iter(answer.output.split(b"\0"))
    return _parse(fields, clean=answer.exit == 0)


def _parse_all(output: bytes) -> list[MergeTrial]:
    found: list[MergeTrial] = []
    fields = iter(output.split(b"\0"))
    for status in fields:
        if not status:
            break
        clean = status == b"1"
        found.append(_parse(fields, clean=clean))
        if clean:
            next(fields)  # the terminator; after a conflict, the remarks include it
    return found


def _parse(fields: Iterator[bytes], *, clean: bool) -> MergeTrial:
    tree = next(fields).decode()
    if clean:
        return MergeTrial(clean=True, tree=tree)
    return MergeTrial(
        clean=False, tree=tree, stages=tuple(_stages(fields)), remarks=tuple(_remarks(fields))
    )


def _stages(fields: Iterator[bytes]) -> Iterator[ConflictStage]:
    while field := next(fields):
        about, _, path = field.partition(b"\t")
        mode, _, stage = about.decode().split(" ")
        yield ConflictStage(path=path, mode=mode, stage=int(stage))


def _remarks(fields: Iterator[bytes]) -> Iterator[MergeRemark]:
    # With a submodule conflict, some versions of git end the list with advice in free text.
    while (count := next(fields)).isdigit():
        paths = tuple(next(fields) for _ in range(int(count)))
        yield MergeRemark(paths=paths, word=next(fields).decode(), text=next(fields))


class MergeSide(Value, frozen=True, kw_only=True):
    """One side of a merge: its commit, its name in hunks, and its tasks."""

    commit: str
    name: str
    tasks: tuple[str, ...]


class PathConflict(Value, frozen=True, kw_only=True):
    """A conflict, with the path in git's bytes."""

    path: bytes
    conflict: Conflict


def files_with_hunks(trial: MergeTrial) -> list[bytes]:
    """The files of the trial's tree that have conflict markers."""
    return [
        path
        for path, remarks in _remarks_by_path(trial).items()
        if any("contents" in remark.word for remark in remarks)
        and _kind(trial, path, remarks) in {"hunk_conflict", "rename"}
    ]


def conflicts_of(
    trial: MergeTrial, ours: MergeSide, theirs: MergeSide, texts: FileTexts
) -> list[PathConflict]:
    """One conflict per path. `texts` are the files named by `files_with_hunks`, from the tree."""
    tasks = tuple(dict.fromkeys((*ours.tasks, *theirs.tasks)))
    return [
        PathConflict(
            path=_own_name(path, ours, theirs),
            conflict=Conflict(
                kind=_kind(trial, path, remarks),
                path=readable_path(_own_name(path, ours, theirs)),
                tasks=tasks,
                detail=_detail(remarks, ours, theirs),
                hunks=tuple(hunks_of(texts.get(path, b""), ours, theirs)),
            ),
        )
        for path, remarks in sorted(_remarks_by_path(trial).items())
    ]


def hunks_of(text: bytes, ours: MergeSide, theirs: MergeSide) -> Iterator[str]:
    """The conflict hunks, shortened, with the sides' names."""
    label = b"|".join(re.escape(each.encode()) for each in (ours.commit, TEXT_MERGE_LABEL))
    opens = re.compile(rb"(<{7,}) (?:" + label + rb")(?::.*)?\r?")
    lines = iter(text.split(b"\n"))
    found = 0
    for line in lines:
        if not (opened := opens.fullmatch(line)):
            continue
        found += 1
        if found > MAX_HUNKS:
            continue
        yield _hunk(lines, len(opened[1]), ours.name, theirs.name)
    if found > MAX_HUNKS:
        yield f"({found - MAX_HUNKS} more hunks)"


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
    kept = [text for side in sides for text in _shorten(side)]
    return "\n".join([*kept, f">>>>>>> {theirs}"])


def _line(line: bytes) -> str:
    text = readable_path(line)
    return text if len(text) <= MAX_LINE_CHARS else f"{text[:MAX_LINE_CHARS]}…"


def _shorten(side: list[str]) -> list[str]:
    more = len(side) - 1 - MAX_LINES
    return side if more <= 0 else [*side[: MAX_LINES + 1], f"… ({more} more lines)"]


def _own_name(path: bytes, ours: MergeSide, theirs: MergeSide) -> bytes:
    """The path without the suffix that git adds where a file meets a folder of its name."""
    name, mark, commit = path.rpartition(b"~")
    return (
        name if mark and commit.decode(errors="replace") in {ours.commit, theirs.commit} else path
    )


def _remarks_by_path(trial: MergeTrial) -> dict[bytes, list[MergeRemark]]:
    found: dict[bytes, list[MergeRemark]] = {}
    for remark in trial.remarks:
        if remark.word.startswith(CONFLICT):
            found.setdefault(remark.paths[0], []).append(remark)
    if not trial.clean and not found:  # some versions of git give no remark, but list the files
        found = {stage.path: [] for stage in trial.stages}
    return found


def _kind(trial: MergeTrial, path: bytes, remarks: list[MergeRemark]) -> ConflictKind:
    kinds = {_kind_of_word(remark.word) for remark in remarks}
    for kind in KIND_RANKS:
        if kind in kinds:
            return kind
    links = any(stage.path == path and stage.mode in LINK_MODES for stage in trial.stages)
    return "mode" if links else "hunk_conflict"


def _kind_of_word(word: str) -> ConflictKind:
    for part, kind in KINDS_BY_WORD.items():
        if part in word:
            return kind
    return "hunk_conflict"


def _detail(remarks: list[MergeRemark], ours: MergeSide, theirs: MergeSide) -> str:
    text = " ".join(dict.fromkeys(readable_path(remark.text).strip() for remark in remarks))
    for side in (ours, theirs):
        text = text.replace(side.commit, side.name)
    return text if len(text) <= MAX_DETAIL_CHARS else f"{text[:MAX_DETAIL_CHARS]}…"


def merge_instructions(
    piece: WorkPiece, branch: str, merged: str, founds: Sequence[PathConflict]
) -> str:
    """The commands to merge a piece by hand, with the decision to make for each file."""
    rivals = dict.fromkeys(
        task for found in founds for task in found.conflict.tasks if task != piece.task
    )
    against = f" with {', '.join(map(repr, rivals))}" if rivals else ""
    what = branch or piece.commit
    files = "file" if len(founds) == 1 else "files"
    lines = [
        f"Task {piece.task!r} is not merged: it conflicts{against} in {len(founds)} {files}.",
        "In any checkout of the repository:",
        f"  git worktree add --detach ../solve-{piece.commit[:12]} {merged}",
        f"  cd ../solve-{piece.commit[:12]}",
        f"  git merge --no-ff {what}   # {piece.commit[:12]}, the work of {piece.task!r}",
        "Then, file by file:",
        *(f"  {_file_instructions(piece, found)}" for found in founds[:MAX_FILES]),
        *([f"  ({len(founds) - MAX_FILES} more)"] if len(founds) > MAX_FILES else []),
        "  git commit --no-edit       # or `git merge --abort` to leave it",
    ]
    return "\n".join(lines)


def _file_instructions(piece: WorkPiece, found: PathConflict) -> str:
    path = shell_quoted(found.path)
    steps = STEPS_BY_KIND.get(found.conflict.kind, STEPS_BY_KIND["hunk_conflict"])
    detail = found.conflict.detail.replace("\n", "\\n")  # one line per file
    return f"{path}: {detail} -> {steps.format(path=path, task=piece.task)}"
