"""May a workspace go? Not if there is work in it that is nowhere else."""

from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from goent.domain.errors import WorkspaceLost
from goent.domain.types import Value
from goent.git.changes import changes
from goent.git.command import Git
from goent.git.keeping import folder_of
from goent.git.paths import MERGED, is_folder
from goent.git.records import Record

State = Literal["unmerged", "merged", "clean", "broken"]


class Verdict(Value, frozen=True, kw_only=True):
    """`commit` is where the branch is; `spent` that nothing is lost if all of it goes."""

    state: State
    commit: str = ""
    spent: bool = False


async def judge(git: Git, record: Record) -> Verdict:
    """By its files as they are now, and by what its branch has that no other has."""
    if not record.ready:  # whoever made it was ended in the middle
        return Verdict(state="clean", spent=True)
    verdict = await _judge(git, record)
    for inner in record.inner:
        if verdict.spent and not (await _judge(git, inner)).spent:
            return replace(verdict, state="unmerged", spent=False)
    return verdict


async def _judge(git: Git, record: Record) -> Verdict:
    workspace = record.workspace
    env = {"GIT_DIR": workspace.repository}
    found = await git.ask(
        *("rev-parse", "--quiet", f"{workspace.base}^{{tree}}"),
        *(f"refs/heads/{workspace.branch}^{{{kind}}}" for kind in ("commit", "tree")),
        env=env,
    )
    at_base, commit, at_tip = (*found.text.split(), "", "", "")[:3] if not found.exit else ("",) * 3
    joined = bool(commit) and await _is_merged(git, record, commit)
    empty = bool(commit) and at_tip == at_base
    try:
        folder = folder_of(git, record)
    except WorkspaceLost:
        gone = not commit or empty or joined
        return Verdict(state="broken", commit=commit, spent=gone)
    if not commit:  # the repository is gone, or the branch: who knows what the files are worth
        return Verdict(state="broken")
    async with folder.snapshot(otherwise=workspace.base, without=record.carried) as snapshot:
        as_on_branch = snapshot.tree == at_tip and not snapshot.left_out
    if not as_on_branch:
        return Verdict(state="unmerged", commit=commit)
    if empty:
        return Verdict(state="clean", commit=commit, spent=True)
    made = await changes(git, Path(workspace.repository), workspace.base, commit)
    if joined and not made.inner:
        return Verdict(state="merged", commit=commit, spent=True)
    return Verdict(state="unmerged", commit=commit)


async def _is_merged(git: Git, record: Record, commit: str) -> bool:
    """Into what the user has checked out, or into the branch that joins its group's work."""
    workspace = record.workspace
    repository = {"GIT_DIR": workspace.repository}
    joined = f"refs/heads/go-ent/{record.group}/{MERGED}"
    if await _is_part(git, commit, joined, repository):
        return True
    if workspace.kind != "worktree" or not is_folder(workspace.origin):
        return False
    return await _is_part(git.at(Path(workspace.origin)), commit, "HEAD", {})


async def _is_part(git: Git, commit: str, of: str, env: dict[str, str]) -> bool:
    answer = await git.ask("merge-base", "--is-ancestor", commit, of, env=env)
    return not answer.exit
