"""How are stored attempts scored again, with the graders that there are now?

Nothing is run but graders. In the run's own folder the new index takes the place of the old one, which
is kept; in another folder, its rows point at the traces where they are.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from goent.domain.errors import RequestError
from goent.domain.forecasts import Judged
from goent.evals.grades import Graded
from goent.evals.outcomes import Correct, judged_of
from goent.evals.reports.rows import Row, latest, read_rows
from goent.evals.reports.words import left_out
from goent.evals.running.conduct import FAILED, judged
from goent.evals.running.conversing import Grading, grade_trial
from goent.evals.running.earlier import GRADES
from goent.evals.running.folder import INDEX, Folder, Manifest, now, read_manifest
from goent.evals.running.materials import digests
from goent.evals.running.outcome import Outcome, outcome
from goent.evals.running.plan import Trial
from goent.evals.running.preparing import Prepared
from goent.evals.running.together import together
from goent.evals.running.watching import Planned, Watcher
from goent.evals.traces import Trace

AT_ONCE: Final = 8


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
    rows = latest(read_rows(source / INDEX).rows)
    known = [(row, trial) for row in rows if (trial := trials.get((row.key, row.trial)))]
    if gone := len(rows) - len(known):
        watcher.warned(left_out(gone))
    if not known:
        raise RequestError(f"{str(source)!r}: there is nothing to grade")
    targets = tuple(dict.fromkeys(row.target for row, _ in known))
    watcher.planned(Planned(total=len(known), kept=0, targets=targets, out=folder.path))
    number = folder.begin_index() + 1
    name = GRADES if number == 1 and source != folder.path else f"grades.{number + 1}.json"
    queue = iter(known)
    changed: list[Row] = []

    async def work() -> None:
        for row, trial in queue:
            graded, anew = await _graded(row, trial, source, grading, watcher)
            path = _seen_from(folder.path, source / row.trace_path) if row.trace_path else ""
            anew = replace(anew, trace_path=path, grades_path=f"{trial.folder}/{name}")
            await folder.keep(graded, anew)
            watcher.ended(anew)
            if anew.execution_status != row.execution_status:
                changed.append(anew)

    await together([work] * AT_ONCE)
    folder.end_index(number)
    manifest = _manifest(prepared, source, folder)
    # Only now: until the index is exchanged, the grades from before are the ones that count.
    if manifest.graded_from is None and (learned := list(_judged(changed, folder.path))):
        await correct(learned)
    came_to = outcome(prepared.trials, folder.rows().rows)
    folder.note(replace(manifest, exit_code=came_to.exit_code))
    return came_to


async def _graded(
    row: Row, trial: Trial, source: Path, grading: Grading, watcher: Watcher
) -> tuple[Graded, Row]:
    """What was held back stays so: there is nothing to grade."""
    if row.held_back_by:
        return Graded(score=row.score, status=row.execution_status, error=row.error), row
    try:
        trace = read_trace(source / row.trace_path).as_it_is_now()
        graded = await grade_trial(grading, trial, trace)
    except RequestError as error:
        watcher.warned(str(error))
        return FAILED, judged(replace(row, error=str(error)), FAILED)
    return graded, judged(row, graded)


def _judged(rows: Sequence[Row], folder: Path) -> Iterator[Judged]:
    """Those of them that the router may have learned from."""
    for row in rows:
        with suppress(RequestError):  # its trace is gone, which was told when it was graded
            trace = read_trace(folder / row.trace_path)
            if found := judged_of(row, trace):
                yield found


def _manifest(prepared: Prepared, source: Path, folder: Folder) -> Manifest:
    """In its own folder a run stays what it was."""
    if folder.path == source:
        return replace(read_manifest(source), gone=())
    files = digests(prepared.materials, folder.path)
    return replace(prepared.manifest, files=files, ended=now(), graded_from=str(source))


def read_trace(path: Path) -> Trace:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Trace)
    except OSError as error:
        raise RequestError(f"the trace {str(path)!r} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise RequestError(f"{str(path)!r} is no trace: {error}") from error


def _seen_from(folder: Path, path: Path) -> str:
    return os.path.relpath(path, folder)
