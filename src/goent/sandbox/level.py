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
OFF = "switched off by `sandbox: off`"
_found: dict[Strictness, SandboxLevel] = {}


async def find_level(best: Strictness) -> SandboxLevel:
    """The best level that works here and is wanted. Tried once in a process's life."""
    if best not in _found:
        _found[best] = await _find(best)
    return _found[best]


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
    levels: Sequence[Level] = ("landlock",) if best == "landlock" else ("namespace", "landlock")
    reasons: list[str] = []
    for level in levels:
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
    said = done.errors.strip().removeprefix("go-ent: ").rpartition("confined: ")[2]
    return "" if done.exit == 0 else said or f"exit {done.exit}"
