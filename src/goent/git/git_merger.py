"""Merges as many pieces of work as fit together, verifies and publishes them, and explains the rest.

Merging a piece brings in everything that it contains, so only the outermost pieces, the heads, are
chosen. Finding the largest set without conflicts is hard in general but easy for a swarm's size: the
search is exact up to a number of steps, then takes the best found. The choice is tried with real
merges, because pieces that merge in pairs may still conflict in threes. All of it happens in git's
object store: no branch, index or checkout is touched.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import anyio
from msgspec.structs import replace

from goent.domain.errors import RequestError
from goent.domain.types import Value
from goent.domain.workspace import Conflict, Merge, UnmergedPiece, WorkPiece
from goent.git.git_command import Git, GitFailed, readable_path
from goent.git.lineage import Lineage
from goent.git.scratch_space import (
    ScratchArea,
    clear_abandoned,
    clear_trials,
    copy_objects,
    scratch_area,
    scratch_checkout,
)
from goent.git.trial_merge import (
    MergeSide,
    MergeTrial,
    PathConflict,
    merge_instructions,
    try_merges,
)
from goent.git.work_survey import (
    Clash,
    Survey,
    lay_out_attributes,
    piece_side,
    read_conflicts,
    survey_pieces,
)

SEARCH_STEPS: Final = 20_000
MAX_ROUNDS: Final = 12  # choices to try
MERGED_NAME: Final = "merged work"


class MergeChoice:
    """Chooses the heads that bring in the most pieces. Sets of pieces are bit masks.

    `covers[n]` is what piece n brings in, itself included; `clashes[n]` what it conflicts with.
    `failed` are sets of heads that did not merge together, although each pair does.
    """

    def __init__(
        self,
        covers: Sequence[int],
        clashes: Sequence[int],
        failed: Sequence[int] = (),
        *,
        steps: int = SEARCH_STEPS,
    ) -> None:
        self._covers = covers
        self._clashes = clashes
        self._failed = failed
        self._steps = steps
        self._best = (-1, 0)

    def heads(self) -> list[int]:
        """The chosen heads, in order. Among equal choices, earlier pieces are preferred."""
        chosen = 0
        for part in self._parts():
            self._best = (-1, 0)
            self._search(part, 0, 0)
            chosen |= self._best[1]
        return list(set_bits(chosen))

    def covered(self) -> int:
        """The number of pieces that the heads bring in: the most that any merge can have."""
        return self._cover(sum(1 << head for head in self.heads())).bit_count()

    def _search(self, open_: int, chosen: int, covered: int) -> None:
        self._steps -= 1
        for piece in set_bits(open_):
            if self._is_free(piece, open_, chosen):
                chosen |= 1 << piece
                open_ &= ~self._covers[piece]
                covered |= self._covers[piece]
        if (covered | self._cover(open_)).bit_count() <= self._best[0]:
            return
        if not open_:
            self._best = (covered.bit_count(), chosen)
            return
        # First without the last of the worst clashing pieces, which makes a good first guess.
        piece = max(set_bits(open_), key=lambda n: ((self._clashes[n] & open_).bit_count(), n))
        rest = open_ & ~(1 << piece)
        self._search(rest, chosen, covered)
        taken = chosen | 1 << piece
        if self._steps > 0 and not any(failed & ~taken == 0 for failed in self._failed):
            brought = self._covers[piece]
            self._search(rest & ~self._clashes[piece] & ~brought, taken, covered | brought)

    def _is_free(self, piece: int, open_: int, chosen: int) -> bool:
        """Whether it conflicts with nothing that may still be chosen."""
        bit = 1 << piece
        return not self._clashes[piece] & open_ and not any(
            failed & bit and not failed & ~(chosen | open_) for failed in self._failed
        )

    def _cover(self, pieces: int) -> int:
        found = 0
        for piece in set_bits(pieces):
            found |= self._covers[piece]
        return found

    def _parts(self) -> Iterator[int]:
        """Independent sets of pieces, which can be searched separately."""
        links = [cover | clash for cover, clash in zip(self._covers, self._clashes, strict=True)]
        for failed in self._failed:
            for piece in set_bits(failed):
                links[piece] |= failed
        left = (1 << len(links)) - 1
        while left:
            part, ahead = 0, left & -left
            while ahead:
                part |= ahead
                ahead = self._next(links, part) & ~part
            left &= ~part
            yield part

    @staticmethod
    def _next(links: Sequence[int], part: int) -> int:
        found = 0
        for piece, link in enumerate(links):
            if part >> piece & 1:
                found |= link
            elif link & part:
                found |= 1 << piece
        return found


def set_bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


class MergeStep(Value, frozen=True, kw_only=True):
    """A merged piece, and the first commit that contains it."""

    piece: int
    commit: str


class MergeRun(Value, frozen=True, kw_only=True):
    """Pieces merged one after the other.

    `failed` are the pieces that did not merge, each after those that were merged by then.
    """

    commit: str
    steps: tuple[MergeStep, ...] = ()
    failed: tuple[tuple[int, ...], ...] = ()

    @property
    def pieces(self) -> tuple[int, ...]:
        return tuple(step.piece for step in self.steps)


class Integration:
    """Merges the pieces of a survey in a scratch area."""

    def __init__(
        self, git: Git, base: str, survey: Survey, message: str, place: ScratchArea
    ) -> None:
        self._git = git.at(place.tree)
        self._base = base
        self._survey = survey
        self._lineage = survey.lineage
        self._message = message
        date = f"@{survey.lineage.latest} +0000"  # the same pieces give the same commits
        self._env = {**place.env, "GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date}
        self._order = _ancestors_first(survey.lineage)

    async def merge(self) -> Merge:
        best, trials = await self._retry_unmerged(await self._merge_most())
        lefts = await self._unmerged(best, trials)
        return Merge(
            commit=best.commit,
            merged=tuple(self._lineage.pieces[n].task for n in best.pieces),
            steps=tuple(step.commit for step in best.steps),
            left=tuple(lefts),
        )

    async def _merge_most(self) -> MergeRun:
        """Merge the best choice by pairwise conflicts; if that fails, the next best."""
        covers, clashes = self._bit_masks()
        best = MergeRun(commit=self._base)
        failed: list[int] = []
        for _ in range(MAX_ROUNDS):
            choice = MergeChoice(covers, clashes, failed)
            if choice.covered() <= len(best.steps):
                break
            heads = choice.heads()
            run = await self._run_heads(heads, covers)
            if len(run.steps) > len(best.steps):
                best = run
            if not run.failed:
                break
            blamed = self._linked(run.failed[0])
            failed.append(sum(1 << head for head in heads if covers[head] & blamed))
        return best

    def _linked(self, pieces: Sequence[int]) -> int:
        """The last of them, and those directly or indirectly linked to it."""
        found = {pieces[-1]}
        ahead = [pieces[-1]]
        while ahead:
            one = ahead.pop()
            near = {n for n in pieces if n not in found and self._are_near(n, one)}
            found |= near
            ahead += near
        return sum(1 << n for n in found)

    def _are_near(self, one: int, other: int) -> bool:
        contained = self._lineage.contains(one, other) or self._lineage.contains(other, one)
        return contained or _pair(one, other) in self._survey.met

    async def _run_heads(self, heads: Sequence[int], covers: Sequence[int]) -> MergeRun:
        """Merge the heads and all that they contain, one by one; if that fails, the heads alone."""
        wanted = 0
        for head in heads:
            wanted |= covers[head]
        run = await self._run([n for n in self._order if wanted >> n & 1])
        if not run.failed:
            return run
        alone = await self._run([n for n in self._order if n in heads])
        return alone if len(alone.steps) > len(run.steps) else run

    async def _run(self, order: Sequence[int], start: MergeRun | None = None) -> MergeRun:
        run = start or MergeRun(commit=self._base)
        for number in order:
            run = await self._add(run, number)
        inside = set(run.pieces)
        failed = tuple(each for each in run.failed if each[-1] not in inside)
        return MergeRun(commit=run.commit, steps=run.steps, failed=failed)

    async def _add(self, run: MergeRun, number: int) -> MergeRun:
        """Merge one more piece, with all that it contains."""
        piece = self._lineage.pieces[number]
        if number in run.pieces:
            return run
        if self._has(run, number):
            return self._with(run, number, run.commit)
        (trial,) = await try_merges(self._git, [(run.commit, piece.commit)], self._env)
        if not trial.clean:
            failed = (*run.failed, (*run.pieces, number))
            return MergeRun(commit=run.commit, steps=run.steps, failed=failed)
        message = f"{self._message}\n\nMerges the work of task {piece.task!r}.\n"
        made = await self._git.run_checked(
            *("commit-tree", trial.tree, "-p", run.commit, "-p", piece.commit, "-F", "-"),
            stdin=message.encode("utf-8", "replace"),
            env=self._env,
        )
        return self._with(run, number, made.text)

    def _with(self, run: MergeRun, number: int, commit: str) -> MergeRun:
        inside = (*run.pieces, number)
        brought = [n for n in self._order if n not in inside and self._lineage.contains(number, n)]
        steps = tuple(MergeStep(piece=n, commit=commit) for n in (*brought, number))
        return MergeRun(commit=commit, steps=(*run.steps, *steps), failed=run.failed)

    def _has(self, run: MergeRun, number: int) -> bool:
        piece = self._lineage.pieces[number]
        return self._lineage.ancestry.contains(self._lineage.ancestry.root, piece.commit) or any(
            self._lineage.contains(n, number) for n in run.pieces
        )

    async def _retry_unmerged(self, run: MergeRun) -> tuple[MergeRun, Mapping[int, MergeTrial]]:
        """Retry the rest: the whole may accept what one piece did not."""
        left = [n for n in range(len(self._lineage.pieces)) if n not in run.pieces]
        pairs = [(run.commit, self._lineage.pieces[n].commit) for n in left]
        trials = dict(zip(left, await try_merges(self._git, pairs, self._env), strict=True))
        clean = [n for n in self._order if n in trials and trials[n].clean]
        return (
            await self._retry_unmerged(await self._run(clean[:1], run)) if clean else (run, trials)
        )

    async def _unmerged(
        self, run: MergeRun, trials: Mapping[int, MergeTrial]
    ) -> list[UnmergedPiece]:
        """The rest, with each piece's conflicts with the merged whole."""
        merged = MergeSide(commit=run.commit, name=MERGED_NAME, tasks=())
        clashes = [
            Clash(trial=trial, ours=merged, theirs=piece_side(self._lineage.pieces[n]))
            for n, trial in trials.items()
        ]
        found = await read_conflicts(self._git, clashes, self._env)
        branches = await self._branches() if found else {}
        return [
            self._left(run, n, founds, branches.get(self._lineage.pieces[n].commit, ""))
            for n, founds in zip(trials, found, strict=True)
        ]

    def _left(
        self, run: MergeRun, number: int, founds: Sequence[PathConflict], branch: str
    ) -> UnmergedPiece:
        piece = self._lineage.pieces[number]
        named = [
            PathConflict(path=each.path, conflict=self._named(run, number, each)) for each in founds
        ]
        return UnmergedPiece(
            task=piece.task,
            conflicts=tuple(each.conflict for each in named),
            instructions=merge_instructions(piece, branch, run.commit, named),
        )

    def _named(self, run: MergeRun, number: int, found: PathConflict) -> Conflict:
        """The conflict with the tasks in the merged whole that touched the file."""
        rivals = [
            self._lineage.pieces[n].task
            for n in run.pieces
            if any(
                each.path == found.path
                for each in self._survey.collisions.get(_pair(n, number), ())
            )
        ] or [
            self._lineage.pieces[n].task for n in run.pieces if self._lineage.touched(n, found.path)
        ]
        name = f"{MERGED_NAME} ({', '.join(rivals)})" if rivals else MERGED_NAME
        conflict = found.conflict
        return replace(
            conflict,
            tasks=tuple(dict.fromkeys((*rivals, *conflict.tasks))),
            detail=conflict.detail.replace(MERGED_NAME, name),
            hunks=tuple(_relabel(hunk, name) for hunk in conflict.hunks),
        )

    async def _branches(self) -> dict[str, str]:
        answer = await self._git.run_checked(
            "for-each-ref", "--format=%(objectname) %(refname:short)", "refs/heads", env=self._env
        )
        found: dict[str, str] = {}
        for line in answer.text.splitlines():
            commit, _, name = line.partition(" ")
            found.setdefault(commit, name)
        return found

    def _bit_masks(self) -> tuple[list[int], list[int]]:
        numbers = range(len(self._lineage.pieces))
        covers = [
            sum(1 << m for m in numbers if m == n or self._lineage.contains(n, m)) for n in numbers
        ]
        clashes = [
            sum(1 << m for m in numbers if _pair(n, m) in self._survey.collisions) for n in numbers
        ]
        return covers, clashes


def _pair(one: int, other: int) -> tuple[int, int]:
    return min(one, other), max(one, other)


def _relabel(hunk: str, name: str) -> str:
    first, _, rest = hunk.partition("\n")
    return f"<<<<<<< {name}\n{rest}" if first.startswith("<<<<<<< ") else hunk


def _ancestors_first(lineage: Lineage) -> list[int]:
    """The given order, but every piece after those that it contains."""
    order: list[int] = []
    numbers = range(len(lineage.pieces))
    for number in numbers:
        inside = [n for n in numbers if n != number and lineage.contains(number, n)]
        inside.sort(key=lambda n: sum(lineage.contains(n, m) for m in numbers))
        order += [n for n in (*inside, number) if n not in order]
    return order


HEADS: Final = "refs/heads/"
MAX_NAMES: Final = 3  # changed files that a message lists
SurveyKey = tuple[str, str, tuple[WorkPiece, ...]]  # repository, base and pieces


async def publish_branch(git: Git, branch: str, commit: str, replaces: str | None) -> None:
    """Point the branch to the commit, unless that loses commits other than `replaces`."""
    name = branch.removeprefix(HEADS)
    ref = HEADS + name
    valid = await git.run("check-ref-format", ref)
    if valid.exit or name.startswith("-") or name == "HEAD":
        raise RequestError(f"{branch!r} is not a valid branch name: see `git check-ref-format`")
    if place := await _checkout_of(git, ref):
        raise RequestError(
            f"the branch {name!r} is checked out in {place!r}, where moving it would show changes: "
            "name another branch, or check out something else there"
        )
    old = (await git.run("rev-parse", "--verify", "--quiet", ref)).text
    await _check_loses_nothing(git, name, old, commit, replaces)
    moved = await git.run(
        *("update-ref", "--no-deref", "-m", "go-ent: merged work", ref, commit, old)
    )
    if moved.exit:
        raise RequestError(
            f"the branch {name!r} could not be set to {commit!r} in {str(git.folder)!r}: somebody "
            f"else moved it just now, or its name collides; look at it and try again ({moved.errors})"
        )


async def _check_loses_nothing(
    git: Git, name: str, old: str, commit: str, replaces: str | None
) -> None:
    known = await git.run("cat-file", "-e", f"{commit}^{{commit}}")
    if known.exit:
        raise RequestError(f"there is no commit {commit!r} in {str(git.folder)!r}")
    if not old or old == replaces:
        return
    if (await git.run("merge-base", "--is-ancestor", old, commit)).exit:
        raise RequestError(
            f"the branch {name!r} is at {old!r}, which {commit!r} does not have: moving it would "
            "lose commits. Name another branch, or merge that one by hand"
        )


async def _checkout_of(git: Git, ref: str) -> str:
    """The path of the checkout that has the branch, or empty."""
    place = b""
    for line in (await git.run_checked("worktree", "list", "--porcelain", "-z")).output.split(
        b"\0"
    ):
        if line.startswith(b"worktree "):
            place = line.removeprefix(b"worktree ")
        elif line == b"branch " + os.fsencode(ref):
            return os.fsdecode(place)
    return ""


async def fast_forward(git: Git, repository: Path, commit: str) -> str:
    """Fast-forward the checkout in git's folder; returns its branch."""
    where = str(git.folder)
    await _check_is_of(git, repository)
    branch = await git.run("symbolic-ref", "--quiet", "--short", "HEAD")
    if branch.exit:
        raise RequestError(
            f"{where!r} has a detached HEAD: check a branch out there, or merge {commit!r}"
        )
    changed = await git.run_checked(
        *("status", "--porcelain", "-z", "--untracked-files=no", "--ignore-submodules=dirty")
    )
    if changed.output:
        raise RequestError(
            f"{where!r} has uncommitted changes ({_changed_names(changed.output)}): commit or stash them, then "
            f"run `git merge --ff-only {commit}` there"
        )
    if (await git.run("merge-base", "--is-ancestor", "HEAD", commit)).exit:
        raise RequestError(
            f"{branch.text!r} in {where!r} has commits that {commit!r} does not have, so it cannot "
            f"fast-forward: run `git merge {commit}` there, or merge the swarm again"
        )
    with anyio.CancelScope(shield=True):  # an interrupted checkout is worse than a late answer
        await _move(git, commit)
    return branch.text


async def _move(git: Git, commit: str) -> None:
    try:
        await git.run_checked(
            *("merge", "--ff-only", "--no-autostash", "--no-overwrite-ignore", "--no-stat"),
            *("--quiet", commit),
        )
    except GitFailed as error:
        raise RequestError(
            f"{error}. Nothing was changed: move the files that are in the way, then run "
            f"`git merge --ff-only {commit}` there"
        ) from None


async def _check_is_of(git: Git, repository: Path) -> None:
    found = await git.run("rev-parse", "--path-format=absolute", "--git-common-dir")
    theirs = await git.at(repository).run("rev-parse", "--path-format=absolute", "--git-common-dir")
    if found.exit or theirs.exit or not _is_same_path(found.text, theirs.text):
        raise RequestError(f"{str(git.folder)!r} is not a checkout of {str(repository)!r}")


def _is_same_path(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


def _changed_names(status: bytes) -> str:
    names = [readable_path(each[3:]) for each in status.split(b"\0") if each]
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more


class GitMerging:
    """Merges pieces of work. `root` is a private folder for temporary files."""

    def __init__(self, git: Git, root: Path) -> None:
        self._git = git
        self._root = root
        self._last: tuple[SurveyKey, Survey] | None = None  # conflicts and merge follow each other

    async def conflicts(
        self, repository: str, base: str, pieces: Sequence[WorkPiece]
    ) -> tuple[Conflict, ...]:
        git = self._at(repository)
        if known := self._known(_key(git, base, pieces)):
            return known.conflicts()
        async with scratch_area(git.folder, self._root) as place:
            return (await self._survey_once(git, base, pieces, place)).conflicts()

    async def merge(
        self, repository: str, base: str, pieces: Sequence[WorkPiece], message: str
    ) -> Merge:
        git = self._at(repository)
        async with scratch_area(git.folder, self._root) as place:
            found = await self._survey_once(git, base, pieces, place)
            merge = await Integration(git, base, found, message, place).merge()
            if merge.commit != base:
                there = [base, *(piece.commit for piece in pieces)]
                await copy_objects(git, merge.commit, there, place.env)
        return merge

    async def publish(
        self, repository: str, branch: str, commit: str, *, replaces: str | None = None
    ) -> None:
        await publish_branch(self._at(repository), branch, commit, replaces)

    async def apply(self, repository: str, checkout: Path, commit: str) -> str:
        return await fast_forward(self._git.at(checkout), Path(repository), commit)

    def scratch(self, repository: str, commit: str) -> AbstractAsyncContextManager[Path]:
        return scratch_checkout(self._at(repository), self._root, commit)

    async def sweep(self) -> None:
        """Remove what killed daemons left in the root."""
        await clear_abandoned(self._git, self._root)
        await anyio.to_thread.run_sync(clear_trials, self._root)

    def _at(self, repository: str) -> Git:
        return self._git.at(Path(repository).absolute())

    async def _survey_once(
        self, git: Git, base: str, pieces: Sequence[WorkPiece], place: ScratchArea
    ) -> Survey:
        key = _key(git, base, pieces)
        if known := self._known(key):
            await lay_out_attributes(git, base, known.lineage.merged_paths(known.met), place.tree)
            return known
        found = await survey_pieces(git, base, pieces, place)
        self._last = key, found
        return found

    def _known(self, key: SurveyKey) -> Survey | None:
        """The last survey, if it has this key: commits never change."""
        return self._last[1] if self._last and self._last[0] == key else None


def _key(git: Git, base: str, pieces: Sequence[WorkPiece]) -> SurveyKey:
    return str(git.folder), base, tuple(pieces)
