"""How long does the report on conflicts take, beside the plain `git merge-tree` calls that it needs?

Branches of a repository with 2,000 files. Each changes files of its own, a file that its neighbour
changes too, and one that all of them change; every fourth collides with the next one. The calls are
those for the pairs that can meet at all, one process each, as a script would make them.
"""

import os
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
from bench.place import Place
from bench.table import Row

from goent.domain.workspace import WorkPiece
from goent.git.git_command import Git
from goent.git.git_merger import GitMerging
from goent.git.scratch_space import scratch_area
from goent.git.work_survey import survey_pieces

FILES = 2_000
BRANCHES = 8
MANY = 32
TIMES = 5
TEXT = "".join(f"line {n}\n" for n in range(200))


async def run(place: Place) -> list[Row]:
    folder = place.project.parent / "conflicts"
    base, pieces = await anyio.to_thread.run_sync(_repository, folder)
    ours, peer, calls = await _compared(folder, base, pieces[:BRANCHES])
    many = await _reported(folder, base, pieces)
    return [
        Row(
            measure=f"conflict report, {BRANCHES} branches of {FILES:,} files",
            unit="ms",
            ours=ours * 1000,
            peer=peer * 1000,
            peer_name=f"the {calls} `git merge-tree` calls",
            at_most=1.5,
        ),
        Row(
            measure=f"conflict report, {MANY} branches of {FILES:,} files",
            unit="s",
            ours=many,
            at_most=10,
        ),
    ]


async def _compared(
    folder: Path, base: str, pieces: Sequence[WorkPiece]
) -> tuple[float, float, int]:
    """Medians of both, taken in turns, and how many calls were needed."""
    pairs = await _needed(folder, base, pieces)
    ours: list[float] = []
    peer: list[float] = []
    for _ in range(TIMES):
        ours.append(await _reported(folder, base, pieces))
        peer.append(await anyio.to_thread.run_sync(_called, folder, pairs))
    return statistics.median(ours), statistics.median(peer), len(pairs)


async def _reported(folder: Path, base: str, pieces: Sequence[WorkPiece]) -> float:
    merging = GitMerging(Git(folder, os.environ), folder.parent / "scratch")
    began = time.perf_counter()
    found = await merging.conflicts(str(folder / ".git"), base, pieces)
    taken = time.perf_counter() - began
    assert any(conflict.hunks for conflict in found)
    return taken


async def _needed(folder: Path, base: str, pieces: Sequence[WorkPiece]) -> list[tuple[str, str]]:
    git = Git(folder / ".git", os.environ)
    async with scratch_area(git.folder, folder.parent / "scratch") as place:
        met = (await survey_pieces(git, base, pieces, place)).met
    return [(pieces[n].commit, pieces[m].commit) for n, m in met]


def _called(folder: Path, pairs: Sequence[tuple[str, str]]) -> float:
    began = time.perf_counter()
    for pair in pairs:
        command = ["git", "merge-tree", "--write-tree", "-z", *pair]
        said = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        assert said.returncode in {0, 1}
    return time.perf_counter() - began


def _repository(folder: Path) -> tuple[str, list[WorkPiece]]:
    folder.mkdir()
    _git(folder, "init", "-q", "-b", "main")
    for number in range(FILES):
        path = folder / _name(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{number}\n{TEXT}")
    base = _commit(folder)
    return base, [_piece(folder, base, number) for number in range(MANY)]


def _name(number: int) -> str:
    return f"src/m{number % 40}/part{number // 400}/f{number}.py"


def _piece(folder: Path, base: str, number: int) -> WorkPiece:
    _git(folder, "checkout", "-q", "--detach", base)
    own = range(100 + 20 * number, 110 + 20 * number)
    for file in own:
        _change(folder, file, 50, f"{number}")
    _change(folder, 0, 4 * number + 10, f"{number}")
    _change(folder, 10 + number // 2, 100 if number % 4 < 2 else number * 4, f"{number}")
    return WorkPiece(task=f"t{number}", commit=_commit(folder))


def _change(folder: Path, file: int, line: int, to: str) -> None:
    path = folder / _name(file)
    path.write_text(path.read_text().replace(f"line {line}\n", f"changed by {to}\n"))


def _commit(folder: Path) -> str:
    _git(folder, "add", "-A")
    _git(folder, "-c", "user.name=bench", "-c", "user.email=bench@localhost", "commit", "-qm", "x")
    return _git(folder, "rev-parse", "HEAD")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", *arguments]
    said = subprocess.run(command, cwd=folder, capture_output=True, check=True, text=True)
    return said.stdout.strip()
