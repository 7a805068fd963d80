"""Finds out how well this machine can confine a process, by trying it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from goent.domain.errors import WorkerCrashed
from goent.domain.sandbox import Level, SandboxLevel, Strictness
from goent.proc.run import run
from goent.sandbox.confinement import Confinement, own_programs

TRIAL_S = 20.0
TRIALS = 3  # of a level that did not answer in time: a busy moment must not decide for a whole life
OFF = "switched off by `sandbox: off`"
_found: dict[Strictness, SandboxLevel] = {}
_unanswered: dict[Level, int] = {}  # trials that timed out


async def find_level(best: Strictness) -> SandboxLevel:
    """The best level that works here and is wanted. Tried once in a process's life.

    A trial that timed out is made again the next time, `TRIALS` in all.
    """
    if best not in _found or _is_open(best):
        _found[best] = await _find(best)
    return _found[best]


def _is_open(best: Strictness) -> bool:
    better = _levels(best)
    if _found[best].name in better:
        better = better[: better.index(_found[best].name)]
    return any(0 < _unanswered.get(level, 0) < TRIALS for level in better)


def _levels(best: Strictness) -> Sequence[Level]:
    if best == "off":
        return ()
    return ("landlock",) if best == "landlock" else ("namespace", "landlock")


def known_level(best: Strictness) -> SandboxLevel:
    """The same, for those who cannot wait. What was not tried yet is taken for the last that was."""
    if best == "off":
        return SandboxLevel(name="none", reason=OFF)
    return _found.get(best) or next(
        each for name, each in reversed(_found.items()) if name != "off"
    )


async def _find(best: Strictness) -> SandboxLevel:
    if best == "off":
        return SandboxLevel(name="none", reason=OFF)
    if not sys.platform.startswith("linux"):
        return SandboxLevel(name="none", reason=f"there is no sandbox on {sys.platform} yet")
    reasons: list[str] = []
    for level in _levels(best):
        trouble = await _trouble(level)
        if not trouble:
            return SandboxLevel(name=level, reason="; ".join(reasons))
        reasons.append(f"no {level}: {trouble}")
    return SandboxLevel(name="none", reason="; ".join(reasons))


async def _trouble(level: Level) -> str:
    """Why a confined process cannot start another one, confined again; empty if it can."""
    with TemporaryDirectory(prefix="go-ent-") as name:
        folder = Path(name)
        inner = Confinement(level=level, writable=())
        outer = Confinement(
            level=level, writable=(), temporary=folder, kept=own_programs(), nestable=True
        )
        command = outer.wrap(inner.wrap(["/bin/true"]))
        try:
            done = await run(command, cwd=Path("/"), env={"TMPDIR": name}, timeout=TRIAL_S)
        except WorkerCrashed as error:
            return str(error)
    if done.exit is None:
        _unanswered[level] = _unanswered.get(level, 0) + 1
        return f"no answer within {TRIAL_S:g} s"
    _unanswered.pop(level, None)
    said = done.errors.strip().removeprefix("go-ent: ").rpartition("confined: ")[2]
    return "" if done.exit == 0 else said or f"exit {done.exit}"
