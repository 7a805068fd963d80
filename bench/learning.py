"""How do we come by what only learning needs? In a virtual environment of its own, made once.

It lies in `.bench` of the checkout beside the changelogs that the weights were learned from.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import anyio
import msgspec

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".bench" / "learning"
READY = HOME / "ready"
CHANGELOGS = ROOT / ".bench" / "changelogs"
FETCHED = CHANGELOGS / "fetched"
PACKAGES = ("numpy>=2", "scipy>=1.14", "scikit-learn>=1.6", "msgspec>=0.22")
MOST_S = 1800.0


class NotLearned(Exception):
    """The message says what stood in the way."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Of one classifier, every repository left out in turn. `balanced`: each type worth the same."""

    accuracy: float
    balanced: float
    rank: float
    rank_balanced: float


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What `scripts/train_classifier.py judge` tells; the last column of `confusion` is neither."""

    tasks: int
    types: tuple[str, ...]
    confusion: tuple[tuple[int, ...], ...]
    ours: Figures
    reference: Figures


async def judged(tasks: Path) -> Judged:
    """Raises `NotLearned`, so that a measure without its peer can say so."""
    return await anyio.to_thread.run_sync(_judged, tasks)


def _judged(tasks: Path) -> Judged:
    _install()
    command = [_python(), "scripts/train_classifier.py", "judge", "--tasks", str(tasks)]
    return msgspec.json.decode(_done([*command, "--changelogs", str(CHANGELOGS)]), type=Judged)


def _install() -> None:
    if not READY.exists():
        shutil.rmtree(HOME, ignore_errors=True)
        _tell(f"(installing scikit-learn into {HOME.parent.name}/, once) ")
        _done([sys.executable, "-I", "-m", "venv", str(HOME)])
        _done([_python(), "-I", "-m", "pip", "install", "--quiet", "--no-input", *PACKAGES])
        READY.touch()
    if not FETCHED.exists():
        _tell("(fetching changelogs, once) ")
        _done([_python(), "scripts/changelogs.py", str(CHANGELOGS)])
        FETCHED.touch()


def _tell(message: str) -> None:
    sys.stderr.write(message)
    sys.stderr.flush()


def _done(command: Sequence[str]) -> bytes:
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "scripts")))
    try:
        return subprocess.run(
            command,
            check=True,
            timeout=MOST_S,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
        ).stdout
    except subprocess.CalledProcessError as error:
        lines: list[str] = error.stderr.decode(errors="replace").strip().splitlines()
        raise NotLearned(lines[-1] if lines else str(error)) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotLearned(str(error)) from error


def _python() -> str:
    return str(HOME / "bin" / "python")
