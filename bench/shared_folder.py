"""What does it take to see which of 20,000 files a worker changed in a folder that it shares?

Once before its turn and once after it, and beside it a plain `git status` of the same checkout, in turns. The
quickest of each counts, for what else a machine does only ever adds to them. Some files are changed and untracked before, as in a checkout where somebody works.
"""

import os
import subprocess
import time
from pathlib import Path

import anyio
from bench.cost import Failed
from bench.place import Place
from bench.spaces import a_repository
from bench.table import Row

from goent.git.git_workspaces import GitWorkspaces

FILES = 20_000
DIRTY = 20  # of each: changed before, untracked before, changed by the worker
TIMES = 15
AT_MOST_MS = 100


async def run(place: Place) -> list[Row]:
    top = await anyio.to_thread.run_sync(_checkout, place)
    plain = top.parent / "plain"
    await anyio.to_thread.run_sync(_plain, plain)
    spaces = GitWorkspaces(top.parent / "state", environ=lambda: place.env)
    rows: list[Row] = []
    for folder, what in ((top, "a checkout of"), (plain, "without git,")):
        before, after, peer = await _measured(spaces, folder, place)
        for when, took in (("before a turn", before), ("after it", after)):
            rows.append(
                Row(
                    measure=f"a look at a shared folder {when}, {what} {FILES:,} files",
                    unit="ms",
                    ours=took * 1000,
                    at_most=AT_MOST_MS,
                )
            )
        if peer:
            rows.append(
                Row(
                    measure=f"`git status` of the same {FILES:,} files", unit="ms", ours=peer * 1000
                )
            )
    return rows


async def _measured(
    spaces: GitWorkspaces, folder: Path, place: Place
) -> tuple[float, float, float]:
    before: list[float] = []
    after: list[float] = []
    peer: list[float] = []
    for number in range(TIMES):
        began = time.perf_counter()
        observation = await spaces.observe(folder, folder)
        before.append(time.perf_counter() - began)
        await anyio.to_thread.run_sync(_change, folder, number)
        began = time.perf_counter()
        changes = await observation.changes()
        after.append(time.perf_counter() - began)
        await observation.close()
        if len(changes.files) != DIRTY:
            raise Failed(
                f"{len(changes.files)} of {DIRTY} changed files were seen; {changes.unseen}"
            )
        if (folder / ".git").exists():
            peer.append(await anyio.to_thread.run_sync(_status, folder, place))
    return min(before), min(after), min(peer, default=0.0)


def _checkout(place: Place) -> Path:
    top = a_repository(place.project.parent / "shared" / "checkout", place, files=FILES)
    for number in range(DIRTY):
        (top / f"untracked{number}.txt").write_text("new\n")
        _append(top, number)
    return top


def _plain(top: Path) -> None:
    for number in range(FILES):
        path = top / f"folder{number // 50}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"file {number}\n")


def _change(top: Path, turn: int) -> None:
    for number in range(DIRTY):
        _append(top, DIRTY + number + turn * DIRTY)


def _append(top: Path, number: int) -> None:
    at = number * 37 % FILES
    with (top / f"folder{at // 50}" / f"file{at}.py").open("a") as file:
        file.write(f"changed {number}\n")


def _status(top: Path, place: Place) -> float:
    began = time.perf_counter()
    subprocess.run(
        ["git", "status", "--porcelain", "--untracked-files=all"],
        cwd=top,
        env={**os.environ, **place.env, "GIT_OPTIONAL_LOCKS": "0"},
        check=True,
        capture_output=True,
    )
    return time.perf_counter() - began
