"""The composition root of `go-ent eval`: joins suites with targets, workspaces and judges.

What a run does not use is not loaded: most suites need no gateway and no daemon.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import CapacityLimiter, to_thread
from msgspec.structs import replace

from goent.composition.live_project import Project
from goent.domain.errors import EnvironmentTrouble
from goent.domain.forecasts import History, Judged
from goent.domain.sandbox import weaker
from goent.evals.commands import Commands
from goent.evals.graders.asked import SCRIPTS_AT_ONCE, askers
from goent.evals.graders.grading import grade_asking
from goent.evals.graders.judging import judge_by_targets
from goent.evals.grades import Graded
from goent.evals.lessons import Learn, Lessons, nobody_learns
from goent.evals.ports import Target
from goent.evals.running.conversing import Grading
from goent.evals.running.evaluate import Bounds, Means, evaluate
from goent.evals.running.folder import Folder
from goent.evals.running.judges import judges_of, usual_judge
from goent.evals.running.opened import Opened, widths
from goent.evals.running.outcome import Outcome
from goent.evals.running.plan import Trial, in_use
from goent.evals.running.preparing import Prepared, uses_sandbox
from goent.evals.running.ready import not_asked
from goent.evals.running.regrade import regrade
from goent.evals.running.watching import Watcher
from goent.evals.suites import TargetSpec
from goent.evals.targets.goent.daemon import OpenDaemon
from goent.evals.traces import Trace
from goent.evals.workspaces import open_scratch, open_workspaces, scratch_root, workspaces_root
from goent.proc.guard import all_guarded
from goent.proc.marks import new_owner, sweep_dead_owners
from goent.proc.run import COMMAND
from goent.project import state_dir
from goent.sandbox.temporary import remove_leftovers

if TYPE_CHECKING:
    from goent.evals.targets.opencode.servers import Servers


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalApp:
    """What a run and a grading have in common."""

    project: Project
    meet: OpenDaemon
    watcher: Watcher

    async def run(self, prepared: Prepared, folder: Folder, bounds: Bounds) -> Outcome:
        """The whole run; see `evaluate`. What a run that was killed had started is ended first."""
        await to_thread.run_sync(sweep_dead_owners, COMMAND)
        await to_thread.run_sync(remove_leftovers, self.project.state)
        specs = {**in_use(prepared.trials, prepared.specs), **judges_of(prepared)}
        idle = [spec.name for spec in specs.values() if not spec.is_agent]
        at_once = widths(specs, prepared.trials, workers=bounds.workers)
        prepared = await self._with_level(prepared, specs.values())
        async with (
            all_guarded(new_owner(COMMAND)),
            open_scratch(scratch_root(self.project.environ())) as scratch,
            self._opened(specs, scratch, at_once) as targets,
            open_workspaces(
                self._commands(),
                run_id=folder.path.name,
                keep=bounds.keep,
                idle=idle,
                warn=self.watcher.warned,
            ) as spaces,
            self._learning(specs.values()) as learn,
        ):
            means = Means(
                targets=targets,
                spaces=spaces,
                grading=self._grading(prepared, targets, scratch),
                watcher=self.watcher,
                learn=learn,
            )
            return await evaluate(prepared, folder, means, bounds)

    async def grade(self, prepared: Prepared, source: Path, folder: Folder) -> Outcome:
        """The run at `source`, with the graders of `prepared`; see `regrade`."""
        judges = judges_of(prepared)
        at_once = widths(judges, prepared.trials, workers=None)
        prepared = await self._with_level(prepared, judges.values())
        async with (
            all_guarded(new_owner(COMMAND)),
            open_scratch(scratch_root(self.project.environ())) as scratch,
            self._opened(judges, scratch, at_once) as targets,
        ):
            return await regrade(
                prepared,
                source,
                folder,
                grading=self._grading(prepared, targets, scratch),
                watcher=self.watcher,
                correct=self._correct,
            )

    async def _with_level(self, prepared: Prepared, specs: Iterable[TargetSpec]) -> Prepared:
        """With the level of the sandbox in its manifest. Finding out costs a process: not for nothing."""
        if not uses_sandbox(prepared.trials, specs):
            return prepared
        level = await self.project.surroundings.sandbox.level()
        noted = weaker(prepared.manifest.sandbox, level.name)
        return replace(prepared, manifest=replace(prepared.manifest, sandbox=noted))

    async def _correct(self, trials: Sequence[Judged]) -> None:
        """The grades stand already: a history that cannot be used costs the lesson alone."""
        try:
            async with self._history() as history:
                for judged in trials:
                    await history.correct(judged)
        except EnvironmentTrouble as trouble:
            self.watcher.warned(f"what the router has learned is not corrected: {trouble}")

    @asynccontextmanager
    async def _learning(self, specs: Iterable[TargetSpec]) -> AsyncGenerator[Learn]:
        """The router learns from those whom it could have chosen."""
        if not any(spec.is_agent for spec in specs):
            yield nobody_learns
            return
        from goent.core.classifier import TaskClassifier  # noqa: PLC0415 (only if it is used)

        async with self._history() as history:
            yield Lessons(history, TaskClassifier(), self.project.folder)

    @asynccontextmanager
    async def _history(self) -> AsyncGenerator[History]:
        from goent.store.history import SqliteHistory  # noqa: PLC0415 (only if it is used)

        async with SqliteHistory.open(state_dir(self.project.environ()) / "history.db") as history:
            for warning in history.warnings:
                self.watcher.warned(warning)
            yield history

    @asynccontextmanager
    async def _opened(
        self, specs: Mapping[str, TargetSpec], scratch: Path, at_once: Mapping[str, int]
    ) -> AsyncGenerator[Opened]:
        """`at_once`: how often each is asked at once."""
        async with AsyncExitStack() as stack:
            kinds = _Kinds(self, scratch)
            if any(spec.kind == "opencode" for spec in specs.values()):
                from goent.composition.eval_models import open_opencode  # noqa: PLC0415 (only if it is used)

                kinds.servers = await stack.enter_async_context(
                    open_opencode(self.project.folder, self.project.environ())
                )
            yield await stack.enter_async_context(Opened.of(specs.values(), kinds.open, at_once))

    def _commands(self) -> Commands:
        return Commands(
            environ=self.project.without_keys(),
            sandbox=self.project.surroundings.sandbox,
            workspaces=workspaces_root(self.project.environ()),
        )

    def _grading(self, prepared: Prepared, targets: Opened, scratch: Path) -> Grading:
        wanted = prepared.manifest.wanted
        commands = self._commands()
        turn = CapacityLimiter(SCRIPTS_AT_ONCE)

        async def grading(trial: Trial, trace: Trace) -> Graded:
            judge = judge_by_targets(
                targets.invoke, default=usual_judge(prepared, trial), scratch=scratch
            )
            return await grade_asking(
                trial.case,
                trace,
                threshold=trial.threshold,
                compat=wanted.compat,
                askers=askers(commands, judge, scratch, turn=turn),
            )

        return grading


class _Kinds:
    """How a target of each kind is opened. What none is, is not loaded."""

    def __init__(self, app: EvalApp, scratch: Path) -> None:
        self._app = app
        self._scratch = scratch
        self.servers: Servers | None = None

    @asynccontextmanager
    async def open(self, spec: TargetSpec) -> AsyncGenerator[Target]:
        yield self._target(spec)

    def _target(self, spec: TargetSpec) -> Target:
        match spec.kind:
            case "cli":
                from goent.evals.targets.cli import CliTarget  # noqa: PLC0415 (only if it is used)

                return CliTarget(spec, self._app.project.without_keys(), scratch=self._scratch)
            case "mock":
                from goent.evals.targets.mock import MockTarget  # noqa: PLC0415 (the same)

                return MockTarget(spec)
            case "replay":
                from goent.evals.targets.replay import ReplayTarget  # noqa: PLC0415 (the same)

                return ReplayTarget(spec)
            case "goent":
                from goent.evals.targets.goent.target import GoentTarget  # noqa: PLC0415 (the same)

                return GoentTarget(spec, self._app.meet, scratch=self._scratch)
            case "opencode" if self.servers:
                from goent.evals.targets.opencode.target import OpenCodeTarget  # noqa: PLC0415 (the same)

                return OpenCodeTarget(spec, self.servers)
            case _:
                raise not_asked(spec)
