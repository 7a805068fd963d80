"""Runs the evaluations that the daemon was asked for, each as a supervised process.

Most daemons run none, so what reads suites and rows is loaded on demand.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
from anyio.abc import TaskGroup
from anyio.to_thread import run_sync

from goent.domain.errors import Ending, GoentError, RequestError
from goent.domain.evaluation_messages import (
    EvalCompareRequest,
    EvalComparison,
    EvalRunRequest,
    EvalStatus,
    EvalStatusRequest,
)
from goent.evals.attended.project_runs import RESUME_REMEDY, AttendedNote, ProjectRuns, write_note
from goent.proc.child_process import SupervisedProcess, supervised
from goent.proc.process_table import new_mark

if TYPE_CHECKING:
    from goent.evals.attended.attended_order import AttendedOrder


log = logging.getLogger(__name__)

PARALLEL_RUNS: Final = 4
EXIT_GRACE_S: Final = 10.0  # for a run to end what it has begun
SHOWN_ERROR: Final = 600  # characters of what a run that failed said last
MISTAKE_EXIT: Final = 2


class _AttendedRun:
    def __init__(self, folder: Path, total: int) -> None:
        self.folder = folder
        self.total = total
        self.cancelled = False
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()


class EvalRuns:
    """Runs a supervised `go-ent eval run` for each request; all end with the daemon."""

    def __init__(
        self, project: Path, *, environ: Callable[[], Mapping[str, str]], owner: str
    ) -> None:
        self._places = ProjectRuns(project)
        self._environ = environ
        self._owner = owner
        self._runs: dict[Path, _AttendedRun] = {}
        self._group: TaskGroup | None = None
        self._start_lock = anyio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Leaving this context ends all runs; they can be resumed."""
        async with anyio.create_task_group() as group:
            self._group = group
            try:
                yield
            finally:
                self._group = None
                group.cancel_scope.cancel()

    @property
    def project(self) -> Path:
        return self._places.project

    @property
    def under_way(self) -> bool:
        return bool(self._runs)

    async def run(self, request: EvalRunRequest, base: Path) -> EvalStatus:
        """Starts a run. Mistakes in the files are raised; the run itself goes on in the background."""
        async with self._start_lock:
            folder = await self._begin(request, base)
        return await self._status(folder)

    async def _begin(self, request: EvalRunRequest, base: Path) -> Path:
        """Starts one run at a time, so that each sees the runs before it."""
        order = await run_sync(_read_order, request, base, self._places)
        if order.resumed_folder in self._runs:
            raise RequestError(
                f"the run {request.resume!r} is still running: wait for it, or cancel it"
            )
        if len(self._runs) >= PARALLEL_RUNS:
            raise RequestError(
                f"{PARALLEL_RUNS} evaluations are running already: wait for one, or cancel one"
            )
        prepared = await run_sync(order.prepared, self._environ(), self.project)
        total = len(prepared.trials)
        folder = await run_sync(self._folder, order, request, base)
        await run_sync(write_note, folder, AttendedNote(total=total))
        if self._group is None:
            raise Ending("this go-ent is ending, and nothing was begun: ask again")
        run = self._runs[folder] = _AttendedRun(folder, total)
        self._group.start_soon(self._run_to_end, run, order.command(request, folder))
        return folder

    async def status(self, request: EvalStatusRequest, base: Path) -> EvalStatus:
        folder = await run_sync(self._places.find, request.run_id, base)
        run = self._runs.get(folder)
        if run and request.cancel:
            run.cancelled = True
            run.scope.cancel()
        if run and (request.wait_s or request.cancel):
            limit = 2 * EXIT_GRACE_S if request.cancel else request.wait_s
            with anyio.move_on_after(limit):
                await run.ended.wait()
        told = await self._status(folder)
        if request.cancel and run is None and told.state == "running":
            raise RequestError(
                f"the run {told.run_id!r} is not ours to cancel: it was begun at a terminal; end it there"
            )
        return told

    async def compare(self, request: EvalCompareRequest, base: Path) -> EvalComparison:
        before, after = [
            await run_sync(self._places.find, name, base)
            for name in (request.before, request.after)
        ]
        return await run_sync(_compare_runs, before, after, request.targets)

    async def _status(self, folder: Path) -> EvalStatus:
        name = self._places.name(folder)
        return await run_sync(_run_status, folder, name, folder in self._runs)

    def _folder(self, order: "AttendedOrder", request: EvalRunRequest, base: Path) -> Path:
        if order.resumed_folder:
            return order.resumed_folder
        if request.out is None:
            return self._places.new()
        folder = self._places.resolve_inside(request.out, base, "out")
        try:
            is_used = folder in self._runs or (folder.exists() and any(folder.iterdir()))
            if not is_used:
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(
                f"out {request.out[:200]!r} cannot hold a run: "
                f"{error.strerror}; name another, or leave it out"
            ) from None
        if is_used:
            raise RequestError(
                f"out {request.out!r} is not empty: go on with the run there by resume, or name another"
            )
        return folder

    async def _run_to_end(self, run: _AttendedRun, command: Sequence[str]) -> None:
        try:
            await self._supervise(run, command)
        except (GoentError, OSError) as error:
            log.warning("the evaluation in %r: %s", str(run.folder), error)
        finally:
            if self._runs.get(run.folder) is run:
                del self._runs[run.folder]
            run.ended.set()

    async def _supervise(self, run: _AttendedRun, command: Sequence[str]) -> None:
        environ = {**self._environ(), "PYTHONUNBUFFERED": "1"}
        async with supervised(
            command,
            cwd=self._places.project,
            env=environ,
            mark=new_mark(self._owner),
            grace=EXIT_GRACE_S,
        ) as child:
            with run.scope:
                await _drain_output(child)
                await child.wait()
        ended = _final_note(run, child, self._places.name(run.folder))
        await run_sync(write_note, run.folder, ended)


async def _drain_output(child: SupervisedProcess) -> None:
    """Its output is in its folder too."""
    try:
        while True:
            await child.stdout.receive()
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass


def _final_note(run: _AttendedRun, child: SupervisedProcess, name: str) -> AttendedNote:
    code = child.returncode
    if run.cancelled:
        message = f"cancelled; {RESUME_REMEDY.format(name=name)}"
        return AttendedNote(total=run.total, state="cancelled", exit_code=code, message=message)
    if code in (0, 1, 3):
        return AttendedNote(total=run.total, state="finished", exit_code=code)
    said = child.stderr[-SHOWN_ERROR:].strip()
    how = f"`go-ent eval run` ended with {code}" + (f": {said}" if said else "")
    remedy = "" if code == MISTAKE_EXIT else f"; {RESUME_REMEDY.format(name=name)}"
    return AttendedNote(total=run.total, state="failed", exit_code=code, message=how + remedy)


def _read_order(request: EvalRunRequest, base: Path, places: ProjectRuns) -> "AttendedOrder":
    from goent.evals.attended.attended_order import read_order  # noqa: PLC0415 (only if it is asked for)

    return read_order(request, base, places)


def _run_status(folder: Path, name: str, under_way: bool) -> EvalStatus:  # noqa: FBT001 (for a thread)
    from goent.evals.attended.attended_status import run_status  # noqa: PLC0415 (the same)

    return run_status(folder, name, under_way=under_way)


def _compare_runs(before: Path, after: Path, targets: tuple[str, str] | None) -> EvalComparison:
    from goent.evals.attended.attended_status import compare_stored_runs  # noqa: PLC0415 (the same)

    return compare_stored_runs(before, after, targets=targets)
