"""What does git say to merging two commits, if nothing but objects is written?

`git merge-tree --write-tree` merges without index and checkout. With `--stdin` (from git 2.39 on)
one process does many merges; an older git is asked once for each.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import anyio

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.git.command import Git

# Whatever the user likes to see in conflicts: both sides, and what was there before.
COMMAND: Final = ("-c", "merge.conflictStyle=zdiff3", "merge-tree", "--write-tree", "-z")
USAGE: Final = 129  # git's exit code for an option that it does not know
TIME_LIMIT: Final = 300.0
LANES: Final = 4  # processes at once
FULL_LANE: Final = 32  # pairs that are worth a process more


class Stage(Value, frozen=True, kw_only=True):
    """A version of a file that could not be merged: 1 is the base's, 2 ours, 3 theirs."""

    path: bytes
    mode: str
    stage: int


class Remark(Value, frozen=True, kw_only=True):
    """What git says of some paths: a stable word for what it is, and a sentence."""

    paths: tuple[bytes, ...]
    word: str
    text: bytes


class Trial(Value, frozen=True, kw_only=True):
    """A merge that was tried. If it is not clean, its `tree` has conflict markers in its files."""

    clean: bool
    tree: str
    stages: tuple[Stage, ...] = ()
    remarks: tuple[Remark, ...] = ()


Pair = tuple[str, str]


async def try_merges(git: Git, pairs: Sequence[Pair], env: Mapping[str, str]) -> list[Trial]:
    """Each pair of commits, in their order. Raises `GitFailed` if git cannot merge at all."""
    lanes = min(LANES, os.cpu_count() or 1, 1 + len(pairs) // FULL_LANE)
    found: dict[int, list[Trial]] = {}
    failures: list[GoentError] = []

    async def drive(lane: int) -> None:
        try:
            found[lane] = await _some(git, pairs[lane::lanes], env)
        except GoentError as error:
            failures.append(error)

    async with anyio.create_task_group() as group:
        for lane in range(lanes):
            group.start_soon(drive, lane)
    if failures:
        raise failures[0]
    return [found[number % lanes][number // lanes] for number in range(len(pairs))]


async def _some(git: Git, pairs: Sequence[Pair], env: Mapping[str, str]) -> list[Trial]:
    if len(pairs) > 1:
        asked = "".join(f"{ours} {theirs}\n" for ours, theirs in pairs).encode()
        answer = await git.ask(*COMMAND, "--stdin", stdin=asked, env=env, timeout=TIME_LIMIT)
        if answer.exit == 0:
            return _parse_all(answer.output)
        if answer.exit != USAGE:
            raise git.failure(answer, "merge-tree")
    return [await _one(git, pair, env) for pair in pairs]


async def _one(git: Git, pair: Pair, env: Mapping[str, str]) -> Trial:
    answer = await git.ask(*COMMAND, *pair, env=env)
    if answer.exit not in {0, 1}:
        raise git.failure(answer, "merge-tree", *pair)
    fields = iter(answer.output.split(b"\0"))
    return _parse(fields, clean=answer.exit == 0)


def _parse_all(output: bytes) -> list[Trial]:
    found: list[Trial] = []
    fields = iter(output.split(b"\0"))
    for status in fields:
        if not status:
            break
        clean = status == b"1"
        found.append(_parse(fields, clean=clean))
        if clean:
            next(fields)  # the end of this one; after a conflict, the remarks' end is that
    return found


def _parse(fields: Iterator[bytes], *, clean: bool) -> Trial:
    tree = next(fields).decode()
    if clean:
        return Trial(clean=True, tree=tree)
    return Trial(
        clean=False, tree=tree, stages=tuple(_stages(fields)), remarks=tuple(_remarks(fields))
    )


def _stages(fields: Iterator[bytes]) -> Iterator[Stage]:
    while field := next(fields):
        about, _, path = field.partition(b"\t")
        mode, _, stage = about.decode().split(" ")
        yield Stage(path=path, mode=mode, stage=int(stage))


def _remarks(fields: Iterator[bytes]) -> Iterator[Remark]:
    # Where a submodule is in conflict, some versions of git end the list by advice in free words.
    while (count := next(fields)).isdigit():
        paths = tuple(next(fields) for _ in range(int(count)))
        yield Remark(paths=paths, word=next(fields).decode(), text=next(fields))
