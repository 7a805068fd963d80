"""Assembles `go-ent eval`: suites with targets, workspaces and judges.

Unused parts are not loaded: most suites need neither gateway nor daemon.
"""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from anyio import CapacityLimiter, to_thread
from msgspec.structs import replace

from goent.composition.live_project import Project
from goent.domain.errors import EnvironmentTrouble
from goent.domain.sandbox_port import weaker_level
from goent.domain.task_profile import TaskGrade, TaskHistory
from goent.evals.eval_ports import EvalTarget, OpenDaemon
from goent.evals.eval_results import CaseGrade
from goent.evals.graders.case_grader import ask_and_grade
from goent.evals.graders.grader_kind import PARALLEL_SCRIPTS, GraderTools
from goent.evals.graders.target_judge import judge_by_targets
from goent.evals.router_feedback import TrialHistory, TrialReporter, report_nothing
from goent.evals.runner.attempt_recorder import RunWatcher
from goent.evals.runner.eval_run import EvalLimits, EvalServices, evaluate, regrade
from goent.evals.runner.open_targets import OpenTargets, parallel_limits
from goent.evals.runner.preflight import default_judge, find_judges
from goent.evals.runner.run_folder import StoredRun
from goent.evals.runner.run_preparation import PreparedRun, uses_sandbox
from goent.evals.runner.run_scheduler import RunOutcome
from goent.evals.runner.trial_plan import Trial, used_targets
from goent.evals.runner.trial_runner import GradeTrial
from goent.evals.suite_commands import SuiteCommandRunner
from goent.evals.suites import TargetSpec
from goent.evals.targets.target_kind import TargetTools
from goent.evals.targets.target_registry import OPENCODE_KIND, is_agent, target_kind
from goent.evals.traces import Trace
from goent.evals.workspaces.attempt_workspaces import open_workspaces
from goent.evals.workspaces.workspace_folders import open_scratch, scratch_root, workspaces_root
from goent.proc.child_process import COMMAND_OWNER, all_guarded
from goent.proc.process_table import new_owner, sweep_dead_owners
from goent.sandbox.confinement import remove_leftovers
from goent.system.project_folders import state_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalApp:
    """Runs and grades evaluations."""

    project: Project
    open_daemon: OpenDaemon
    watcher: RunWatcher

    async def run(self, prepared: PreparedRun, folder: StoredRun, bounds: EvalLimits) -> RunOutcome:
        """Run an evaluation; see `evaluate`. Processes of killed runs are ended first."""
        await to_thread.run_sync(sweep_dead_owners, COMMAND_OWNER)
        await to_thread.run_sync(remove_leftovers, self.project.state)
        specs = {**used_targets(prepared.trials, prepared.specs), **find_judges(prepared)}
        idle = [spec.name for spec in specs.values() if not is_agent(spec)]
        parallel = parallel_limits(specs, prepared.trials, workers=bounds.workers)
        prepared = await self._with_level(prepared, specs.values())
        async with (
            all_guarded(new_owner(COMMAND_OWNER)),
            open_scratch(scratch_root(self.project.environ())) as scratch,
            self._opened(specs, scratch, parallel) as targets,
            open_workspaces(
                self._commands(),
                run_id=folder.path.name,
                keep=bounds.keep,
                idle=idle,
                warn=self.watcher.warned,
            ) as spaces,
            self._learning(specs.values()) as learn,
        ):
            means = EvalServices(
                targets=targets,
                spaces=spaces,
                grading=self._grading(prepared, targets, scratch),
                watcher=self.watcher,
                learn=learn,
            )
            return await evaluate(prepared, folder, means, bounds)

    async def grade(self, prepared: PreparedRun, source: Path, folder: StoredRun) -> RunOutcome:
        """Grade the run at `source` with the graders of `prepared`; see `regrade`."""
        judges = find_judges(prepared)
        parallel = parallel_limits(judges, prepared.trials, workers=None)
        prepared = await self._with_level(prepared, judges.values())
        async with (
            all_guarded(new_owner(COMMAND_OWNER)),
            open_scratch(scratch_root(self.project.environ())) as scratch,
            self._opened(judges, scratch, parallel) as targets,
        ):
            return await regrade(
                prepared,
                source,
                folder,
                grading=self._grading(prepared, targets, scratch),
                watcher=self.watcher,
                correct=self._correct,
            )

    async def _with_level(self, prepared: PreparedRun, specs: Iterable[TargetSpec]) -> PreparedRun:
        """With the sandbox level in its manifest, which takes a process to find out."""
        if not uses_sandbox(prepared.trials, specs):
            return prepared
        level = await self.project.surroundings.sandbox.level()
        noted = weaker_level(prepared.manifest.sandbox, level.name)
        return replace(prepared, manifest=replace(prepared.manifest, sandbox=noted))

    async def _correct(self, trials: Sequence[TaskGrade]) -> None:
        """Correct the router's history. A failure is only a warning: the grades are stored already."""
        try:
            async with self._history() as history:
                for judged in trials:
                    await history.regrade(judged)
        except EnvironmentTrouble as trouble:
            self.watcher.warned(f"the router's history was not corrected: {trouble}")

    @asynccontextmanager
    async def _learning(self, specs: Iterable[TargetSpec]) -> AsyncGenerator[TrialReporter]:
        """Record trials of agents in the router's history."""
        if not any(map(is_agent, specs)):
            yield report_nothing
            return
        from goent.routing.router import TaskClassifier  # noqa: PLC0415 (only if it is used)

        async with self._history() as history:
            yield TrialHistory(history, TaskClassifier(), self.project.folder)

    @asynccontextmanager
    async def _history(self) -> AsyncGenerator[TaskHistory]:
        from goent.providers.track_record import SqliteHistory  # noqa: PLC0415 (only if it is used)

        async with SqliteHistory.open(state_dir(self.project.environ()) / "history.db") as history:
            for warning in history.warnings:
                self.watcher.warned(warning)
            yield history

    @asynccontextmanager
    async def _opened(
        self, specs: Mapping[str, TargetSpec], scratch: Path, parallel: Mapping[str, int]
    ) -> AsyncGenerator[OpenTargets]:
        """`parallel`: the limit of parallel calls per target."""
        async with AsyncExitStack() as stack:
            servers = None
            if any(spec.kind == OPENCODE_KIND.name for spec in specs.values()):
                from goent.composition.eval_models import open_opencode  # noqa: PLC0415 (only if it is used)

                servers = await stack.enter_async_context(
                    open_opencode(self.project.folder, self.project.environ())
                )
            tools = TargetTools(
                environ=self.project.environ_without_keys(),
                scratch=scratch,
                open_daemon=self.open_daemon,
                opencode_servers=servers,
            )

            @asynccontextmanager
            async def opened(spec: TargetSpec) -> AsyncGenerator[EvalTarget]:
                yield target_kind(spec).open(spec, tools)

            yield await stack.enter_async_context(
                OpenTargets.open(specs.values(), opened, parallel)
            )

    def _commands(self) -> SuiteCommandRunner:
        return SuiteCommandRunner(
            environ=self.project.environ_without_keys(),
            sandbox=self.project.surroundings.sandbox,
            workspaces=workspaces_root(self.project.environ()),
        )

    def _grading(self, prepared: PreparedRun, targets: OpenTargets, scratch: Path) -> GradeTrial:
        wanted = prepared.manifest.wanted
        commands = self._commands()
        turn = CapacityLimiter(PARALLEL_SCRIPTS)

        async def grading(trial: Trial, trace: Trace) -> CaseGrade:
            judge = judge_by_targets(
                targets.invoke, default=default_judge(prepared, trial), scratch=scratch
            )
            return await ask_and_grade(
                trial.case,
                trace,
                threshold=trial.threshold,
                compat=wanted.compat,
                tools=GraderTools(commands=commands, judge=judge, scratch=scratch, turn=turn),
            )

        return grading
