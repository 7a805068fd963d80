"""How are stored attempts scored again, with the graders that there are now?

Nothing is run but graders. In the run's own folder the new index takes the place of the old one, which
is kept; in another folder, its rows point at the traces where they are.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from goent.domain.errors import RequestError
from goent.domain.forecasts import Judged
from goent.domain.sandbox import weaker
from goent.evals.grades import Graded
from goent.evals.lessons import Correct, judged_of
from goent.evals.reports.words import left_out
from goent.evals.rows import Row, Rows, latest, read_rows
from goent.evals.running.conduct import FAILED, judged
from goent.evals.running.conversing import Grading, grade_trial
from goent.evals.running.earlier import GRADES
from goent.evals.running.folder import INDEX, Folder, Manifest, counting, now, read_manifest
from goent.evals.running.materials import digests
from goent.evals.running.outcome import Outcome, outcome
from goent.evals.running.plan import Trial
from goent.evals.running.preparing import Prepared
from goent.evals.running.together import together
from goent.evals.running.watching import Planned, Watcher
from goent.evals.traces import Trace
from goent.plain_files import LARGE, read_plain

AT_ONCE: Final = 8


class _Graders(NamedTuple):
    """Who grades, and who is told."""

    grading: Grading
    watcher: Watcher


async def regrade(
    prepared: Prepared,
    source: Path,
    folder: Folder,
    *,
    grading: Grading,
    watcher: Watcher,
    correct: Correct,
) -> Outcome:
    """The run at `source`, graded into `folder`. A run that is graded in its own folder is corrected.

    Raises `RequestError` if there is nothing to grade.
    """
    trials = {(trial.key, trial.number): trial for trial in prepared.trials}
    read = read_rows(source / INDEX)
    rows = latest(read.rows)
    known = [(row, trial) for row in rows if (trial := trials.get((row.key, row.trial)))]
    if gone := len(rows) - len(known):
        watcher.warned(left_out(gone))
    if not known:
        raise RequestError(f"{str(source)!r}: there is nothing to grade")
    targets = tuple(dict.fromkeys(row.target for row, _ in known))
    watcher.planned(Planned(total=len(known), kept=0, targets=targets, out=folder.path))
    number = folder.begin_index() + 1
    name = GRADES if number == 1 and source != folder.path else f"grades.{number + 1}.json"
    changed = await _all_graded(known, name, source, folder, _Graders(grading, watcher))
    manifest = _manifest(prepared, source, folder, counting(read, source))
    folder.end_index(number)
    # Only now: until the index is exchanged, the grades from before are the ones that count.
    if manifest.graded_from is None and (learned := list(_judged(changed, folder.path))):
        await correct(learned)
    enough = {key for key, _ in manifest.spared}
    came_to = outcome(prepared.trials, folder.rows().rows, stopped=manifest.stopped, enough=enough)
    folder.note(replace(manifest, exit_code=came_to.exit_code))
    return came_to


async def _all_graded(
    known: Sequence[tuple[Row, Trial]], name: str, source: Path, folder: Folder, by: _Graders
) -> list[Row]:
    """All of them are in the new index, or none. Returns those whose status is another one now."""
    queue = iter(known)
    changed: list[Row] = []

    async def work() -> None:
        for row, trial in queue:
            graded, anew = await _graded(row, trial, source, by)
            path = _seen_from(folder.path, source / row.trace_path) if row.trace_path else ""
            anew = replace(anew, trace_path=path, grades_path=f"{trial.folder}/{name}")
            await folder.keep(graded, anew)
            by.watcher.ended(anew)
            if anew.execution_status != row.execution_status:
                changed.append(anew)

    try:
        await together([work] * AT_ONCE)
    except BaseException:
        folder.drop_index(f"{trial.folder}/{name}" for _, trial in known)
        raise
    return changed


async def _graded(row: Row, trial: Trial, source: Path, by: _Graders) -> tuple[Graded, Row]:
    """What was held back stays so: there is nothing to grade."""
    if row.held_back_by:
        return Graded(score=row.score, status=row.execution_status, error=row.error), row
    try:
        trace = read_trace(source / row.trace_path).as_it_is_now()
        graded = await grade_trial(by.grading, trial, trace)
    except RequestError as error:
        by.watcher.warned(str(error))
        return FAILED, judged(replace(row, error=str(error)), FAILED)
    return graded, judged(row, graded)


def _judged(rows: Sequence[Row], folder: Path) -> Iterator[Judged]:
    """Those of them that the router may have learned from."""
    for row in rows:
        with suppress(RequestError):  # its trace is gone, which was told when it was graded
            trace = read_trace(folder / row.trace_path)
            if found := judged_of(row, trace):
                yield found


def _manifest(prepared: Prepared, source: Path, folder: Folder, read: Rows) -> Manifest:
    """In its own folder a run stays what it was, but for who judged it, and from which score on it passes."""
    before = read_manifest(source)
    planned = {(trial.key, trial.number) for trial in prepared.trials}
    now_so = replace(
        before,
        wanted=prepared.manifest.wanted,
        gone=(),
        planned=len(planned) if before.planned is not None else None,
        spared=tuple(one for one in before.spared if one in planned),
        remade=tuple(sorted(read.remade & planned)),
        sandbox=weaker(before.sandbox, prepared.manifest.sandbox),
    )
    if folder.path == source:
        return now_so
    return replace(
        now_so,
        suites=prepared.manifest.suites,
        targets_file=prepared.manifest.targets_file,
        began=prepared.manifest.began,
        files=digests(prepared.materials, folder.path),
        ended=now(),
        graded_from=str(source),
    )


def read_trace(path: Path) -> Trace:
    try:
        return msgspec.json.decode(read_plain(path, LARGE), type=Trace)
    except OSError as error:
        raise RequestError(f"the trace {str(path)!r} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise RequestError(f"{str(path)!r} is no trace: {error}") from error


def _seen_from(folder: Path, path: Path) -> str:
    return os.path.relpath(path, folder)
