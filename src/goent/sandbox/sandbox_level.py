"""Finds the best level of confinement that works on this machine, by trying it."""

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from goent.domain.errors import WorkerCrashed
from goent.domain.sandbox_port import SandboxLevel, SandboxLevelName, SandboxStrictness
from goent.proc.child_process import run_command
from goent.sandbox.confinement import Confinement, goent_programs

TRIAL_S = 20.0


MAX_TRIALS = 3  # of a level that timed out: a busy moment must not decide for good


OFF_REASON = "switched off by `sandbox: off`"


_found_levels: dict[SandboxStrictness, SandboxLevel] = {}


_timed_out_trials: dict[SandboxLevelName, int] = {}  # trials that timed out


async def find_level(best: SandboxStrictness) -> SandboxLevel:
    """The best level that works here and that the settings allow; tried once per process.

    A trial that timed out is repeated the next time, up to `MAX_TRIALS` times.
    """
    if best not in _found_levels or _is_undecided(best):
        _found_levels[best] = await _try_levels(best)
    return _found_levels[best]


def _is_undecided(best: SandboxStrictness) -> bool:
    better = _candidate_levels(best)
    if _found_levels[best].name in better:
        better = better[: better.index(_found_levels[best].name)]
    return any(0 < _timed_out_trials.get(level, 0) < MAX_TRIALS for level in better)


def _candidate_levels(best: SandboxStrictness) -> Sequence[SandboxLevelName]:
    if best == "off":
        return ()
    return ("landlock",) if best == "landlock" else ("namespace", "landlock")


def known_level(best: SandboxStrictness) -> SandboxLevel:
    """As `find_level`, without waiting: a level that was not tried yet counts as the last one that was."""
    if best == "off":
        return SandboxLevel(name="none", reason=OFF_REASON)
    return _found_levels.get(best) or next(
        each for name, each in reversed(_found_levels.items()) if name != "off"
    )


async def _try_levels(best: SandboxStrictness) -> SandboxLevel:
    if best == "off":
        return SandboxLevel(name="none", reason=OFF_REASON)
    if not sys.platform.startswith("linux"):
        return SandboxLevel(name="none", reason=f"there is no sandbox on {sys.platform} yet")
    reasons: list[str] = []
    for level in _candidate_levels(best):
        trouble = await _level_failure(level)
        if not trouble:
            return SandboxLevel(name=level, reason="; ".join(reasons))
        reasons.append(f"no {level}: {trouble}")
    return SandboxLevel(name="none", reason="; ".join(reasons))


async def _level_failure(level: SandboxLevelName) -> str:
    """Why a confined process cannot start another confined one; empty if it can."""
    with TemporaryDirectory(prefix="go-ent-") as name:
        folder = Path(name)
        inner = Confinement(level=level, writable=())
        outer = Confinement(
            level=level,
            writable=(),
            temporary=folder,
            kept_visible=goent_programs(),
            is_nestable=True,
        )
        command = outer.wrap(inner.wrap(["/bin/true"]))
        try:
            done = await run_command(command, cwd=Path("/"), env={"TMPDIR": name}, timeout=TRIAL_S)
        except WorkerCrashed as error:
            return str(error)
    if done.exit is None:
        _timed_out_trials[level] = _timed_out_trials.get(level, 0) + 1
        return f"no answer within {TRIAL_S:g} s"
    _timed_out_trials.pop(level, None)
    said = done.errors.strip().removeprefix("go-ent: ").rpartition("confined: ")[2]
    return "" if done.exit == 0 else said or f"exit {done.exit}"
