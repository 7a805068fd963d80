"""What exactly does somebody do to bring in a piece that could not be merged? Pure."""

from collections.abc import Mapping, Sequence
from typing import Final

from goent.domain.workspaces import ConflictKind, Piece
from goent.git.conflicts import Found
from goent.git.names import for_shell

FILES: Final = 20
WAYS: Final[Mapping[ConflictKind, str]] = {
    "hunk_conflict": "edit it so that both changes are in it, without markers; then `git add -- {path}`",
    "delete_modify": "`git rm -- {path}` to let it go, or edit and `git add -- {path}` to keep it",
    "rename": "decide for one name: `git add -- NAME` for what stays, `git rm -- {path}` for what goes",
    "binary": "`git checkout --ours -- {path}` (merged) or `--theirs` ({task}); then `git add -- {path}`",
    "mode": "`git checkout --ours -- {path}` (merged) or `--theirs` ({task}); then `git add -- {path}`",
}


def instructions(piece: Piece, branch: str, merged: str, founds: Sequence[Found]) -> str:
    """Commands for a checkout of the repository, and for each file what is to be decided."""
    rivals = dict.fromkeys(
        task for found in founds for task in found.conflict.tasks if task != piece.task
    )
    against = f" with {', '.join(map(repr, rivals))}" if rivals else ""
    what = branch or piece.commit
    files = "file" if len(founds) == 1 else "files"
    lines = [
        f"Task {piece.task!r} is not merged: it collides{against} in {len(founds)} {files}.",
        "In any checkout of the repository:",
        f"  git worktree add --detach ../solve-{piece.commit[:12]} {merged}",
        f"  cd ../solve-{piece.commit[:12]}",
        f"  git merge --no-ff {what}   # {piece.commit[:12]}, the work of {piece.task!r}",
        "Then, file by file:",
        *(f"  {_way(piece, found)}" for found in founds[:FILES]),
        *([f"  ({len(founds) - FILES} more)"] if len(founds) > FILES else []),
        "  git commit --no-edit       # or `git merge --abort` to leave it",
    ]
    return "\n".join(lines)


def _way(piece: Piece, found: Found) -> str:
    path = for_shell(found.path)
    told = WAYS.get(found.conflict.kind, WAYS["hunk_conflict"])
    detail = found.conflict.detail.replace("\n", "\\n")  # of a name; each file has one line
    return f"{path}: {detail} -> {told.format(path=path, task=piece.task)}"
