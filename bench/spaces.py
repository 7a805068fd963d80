"""How soon does a worker have a worktree of its own, beside plain `git worktree add`?

Sixteen of each in a repository of two thousand files, one after the other and in turns, so that
neither side has the quieter machine.
"""

import shutil
import subprocess
import time
from pathlib import Path

import anyio
from bench.place import Place
from bench.table import Row

from goent.domain.workspace import WorkspaceRequest
from goent.git.git_workspaces import GitWorkspaces

FILES = 2_000
WORKTREES = 16
LINES = 40


async def run(place: Place) -> list[Row]:
    top = place.project.parent / "spaces"
    repository = await anyio.to_thread.run_sync(a_repository, top / "repository", place)
    spaces = GitWorkspaces(top / "state", environ=lambda: place.env)
    ours, peer = 0.0, 0.0
    await _ours(spaces, repository, "warm-up")
    for number in range(WORKTREES):
        ours += await _ours(spaces, repository, f"w-{number}")
        peer += await anyio.to_thread.run_sync(_peer, repository, top / f"plain-{number}", place)
    await anyio.to_thread.run_sync(shutil.rmtree, top)
    return [
        Row(
            measure=f"a worker's worktree ready, {FILES:,} files, mean of {WORKTREES}",
            unit="ms",
            ours=ours / WORKTREES * 1000,
            peer=peer / WORKTREES * 1000,
            peer_name="`git worktree add`",
            at_most=1.3,
        )
    ]


async def _ours(spaces: GitWorkspaces, repository: Path, worker: str) -> float:
    began = time.perf_counter()
    order = WorkspaceRequest(worker=worker, group="bench", cwd=repository, kind="worktree")
    await spaces.prepare(order)
    return time.perf_counter() - began


def _peer(repository: Path, folder: Path, place: Place) -> float:
    began = time.perf_counter()
    command = ["git", "worktree", "add", "-q", "-b", folder.name, str(folder)]
    subprocess.run(command, cwd=repository, env=place.env, check=True)
    return time.perf_counter() - began


def a_repository(top: Path, place: Place, *, files: int = FILES) -> Path:
    """Of text files, in folders of fifty."""
    for number in range(files):
        path = top / f"folder{number // 50}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"line {line} of file {number}\n" for line in range(LINES)))
    for command in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        ("-c", "user.name=bench", "-c", "user.email=b@localhost", "commit", "-q", "-m", "first"),
    ):
        subprocess.run(["git", *command], cwd=top, env=place.env, check=True)
    return top
