"""`go-ent demo`: three workers and a swarm on scripted models, in a throwaway project."""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from anyio.from_thread import BlockingPortal, start_blocking_portal
from msgspec.structs import replace

from goent.cli import drawing
from goent.cli.board import Board, BoardRow, board_table, open_board, styled_line
from goent.cli.command_options import JsonOption
from goent.cli.daemon_client import CommandError, DaemonClient, open_daemon_client
from goent.cli.daemon_control import stop_daemon
from goent.cli.display import print_reply, show_costs, show_result
from goent.cli.doctor import installed_opencode
from goent.cli.labels import badge, duration, money, short_number
from goent.cli.swarm_commands import read_task_file, swarm_result
from goent.cli.swarm_display import show_merged, show_swarm_summary
from goent.cli.swarm_watcher import open_swarm_watcher
from goent.cli.terminal import (
    Keyboard,
    make_console,
    open_keyboard,
    print_notice,
    print_now,
    signal_handlers,
)
from goent.cli.turn_follower import event_line
from goent.config.trust_survey import trust_everything
from goent.domain.events import (
    EventEnvelope,
    PermissionAnswered,
    PermissionAsked,
    PermissionWithdrawn,
    WorkerSpawned,
)
from goent.domain.question_text import visible_text
from goent.domain.replies import AnswerReply, Costs, Result, SpawnReply
from goent.domain.requests import AnswerRequest, CostsRequest, SpawnRequest, WorkerRequest
from goent.domain.swarm_messages import (
    SwarmMergeReply,
    SwarmMergeRequest,
    SwarmResult,
    SwarmRetryRequest,
    SwarmStatus,
)
from goent.domain.types import ENDED_STATES, PermissionAnswer, Value
from goent.proc.child_process import run_command
from goent.proc.programs import find_program
from goent.testing.hermetic_opencode import hermetic_env
from goent.testing.script import Script, load_script
from goent.testing.scripted_server import ScriptedModels
from goent.workers.views import WorkerView, fold_worker, worker_status

SLUG_SOURCE = '''\
"""Titles into addresses."""

import re


def slug(title: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
'''
CONFIG_YAML = """\
default_provider: zai/glm-4.7
profile: hermetic
daemon: {idle_exit_s: 60}
"""
PROVIDERS_YAML = """\
providers:
  zai/glm-4.7:
    provider: zai
    model: glm-4.7
    base_url: {moonshot}
    api_key_env: DEMO_MOONSHOT_KEY
    context_limit: 128000
    price: {{input: 0.60, output: 2.20, cache_read: 0.11}}
  moonshotai/kimi-k2.6:
    provider: moonshotai
    model: kimi-k2.6
    base_url: {moonshot}
    api_key_env: DEMO_MOONSHOT_KEY
    context_limit: 262144
    price: {{input: 0.95, output: 4.00, cache_read: 0.16}}
  deepseek/deepseek-flash:
    provider: deepseek
    model: deepseek-flash
    base_url: {deepseek}
    api_key_env: DEMO_DEEPSEEK_KEY
    context_limit: 128000
    price: {{input: 0.15, output: 0.60, cache_read: 0.003}}
"""
INHERITED_VARIABLES = (
    "PATH",
    "LD_LIBRARY_PATH",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "PYTHONPATH",
    "GOENT_LOG",
)
GIT_COMMAND = ("git", "-c", "user.name=demo", "-c", "user.email=demo@localhost")


class DemoProject(Value, frozen=True, kw_only=True):
    """A sample project for the demo's workers."""

    project: Path
    has_git: bool


@contextmanager
def open_demo_project(opencode: Path, *, keep: bool) -> Generator[DemoProject]:
    """A sample project with scripted models; leaving stops its daemon and removes it."""
    folder = Path(tempfile.mkdtemp(prefix="go-ent-demo-")).resolve()
    project = folder / "sample"
    try:
        with start_blocking_portal() as portal, _open_script() as script:
            models = ScriptedModels(script)
            with (
                portal.wrap_async_context_manager(models),
                _use_environment(_variables(folder, opencode, script)),
            ):
                _build_project(project, models, portal)
                try:
                    yield DemoProject(
                        project=project, has_git=bool(find_program("git", os.environ))
                    )
                finally:
                    with signal_handlers(
                        signal.SIG_IGN
                    ):  # a second Ctrl-C must not leave a daemon behind
                        stop_daemon(project, force=True)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _open_script() -> Generator[Script]:
    with as_file(files("goent.cli") / "demo_script.yaml") as path:
        yield load_script(path)


def _variables(folder: Path, opencode: Path, script: Script) -> Mapping[str, str]:
    """An environment with the user's programs, but without their keys, settings and folders."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700)
    passed = {name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ}
    keys = {
        f"DEMO_{name.upper()}_KEY": provider.key or ""
        for name, provider in script.providers.items()
    }
    own_python = str(Path(sys.executable).parent)  # the tasks call python3
    return {
        **passed,
        **hermetic_env(folder / "home"),
        **keys,
        "PATH": f"{own_python}:{os.environ.get('PATH', os.defpath)}",
        "XDG_RUNTIME_DIR": str(runtime),
        "GOENT_OPENCODE": str(opencode),
    }


@contextmanager
def _use_environment(variables: Mapping[str, str]) -> Generator[None]:
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _build_project(project: Path, models: ScriptedModels, portal: BlockingPortal) -> None:
    settings = project / ".goent"
    settings.mkdir(parents=True)
    (project / "slug.py").write_text(SLUG_SOURCE)
    (settings / "config.yaml").write_text(CONFIG_YAML)
    urls = {name: models.base_url(name) for name in models.script.providers}
    (settings / "providers.yaml").write_text(PROVIDERS_YAML.format(**urls))
    trust_everything(project, os.environ)
    if find_program("git", os.environ):
        for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "A sample")):
            git = partial(
                run_command, (*GIT_COMMAND, *command), cwd=project, env=dict(os.environ), timeout=30
            )
            portal.call(git)


SWARM_TASKS = """\
swarm: tidy-up
tasks:
  - {id: accents, provider: moonshotai/kimi-k2.6, prompt: "Let slug keep accents."}
  - {id: separator, provider: zai/glm-4.7, prompt: "Give slug a separator as a parameter."}
  - {id: cli, provider: deepseek/deepseek-flash, prompt: "Write cli.py, a command line for slug.",
     verify: [test $(python3 cli.py Hello World) = hello-world]}
  - {id: licence, provider: moonshotai/kimi-k2.6, prompt: "Add the MIT licence.",
     verify: [grep -q MIT LICENSE]}
"""
FAILING_TASK, RETRY_PROVIDER = "licence", "deepseek/deepseek-flash"
CONFLICTING_TASKS = {"accents", "separator"}


class DemoSwarmResult(Value, frozen=True, kw_only=True):
    """The result of the swarm, and of its merge."""

    result: SwarmResult
    merged: SwarmMergeReply

    @property
    def worked(self) -> bool:
        """Whether all tasks completed, the planted conflict was found, and the rest was merged."""
        done = all(task.state == "completed" for task in self.result.tasks)
        found = {t for c in self.result.conflicts if c.kind == "hunk_conflict" for t in c.tasks}
        return (
            done
            and found == CONFLICTING_TASKS
            and len(self.merged.merged) == len(self.result.tasks) - 1
        )


def run_demo_swarm(through: DaemonClient, project: Path, *, silent: bool) -> DemoSwarmResult:
    """Run the tasks, retry the one that fails, and merge what does not conflict."""
    file = project / ".goent" / "tasks.yaml"
    file.write_text(SWARM_TASKS)
    if not silent:
        print_now("\nNow a swarm: four workers on three models, each in its own git worktree.")
        print_now(f"go-ent swarm {file.relative_to(project)}\n")
    begun = through.call("swarm_spawn", read_task_file(str(file)), SwarmStatus)
    _watch_swarm(through, begun.swarm_id, silent=silent)
    if not silent:
        show_swarm_summary(swarm_result(begun.swarm_id, through))
        print_now(
            f"\nIts claim to be done was refuted. Retrying with another model: {RETRY_PROVIDER}"
        )
        print_now(
            f"go-ent swarm retry {begun.swarm_id} {FAILING_TASK} --provider {RETRY_PROVIDER}\n"
        )
    retry = SwarmRetryRequest(
        swarm_id=begun.swarm_id, tasks=(FAILING_TASK,), provider=RETRY_PROVIDER
    )
    through.call("swarm_retry", retry, SwarmStatus)
    _watch_swarm(through, begun.swarm_id, silent=silent)
    result = swarm_result(begun.swarm_id, through)
    if not silent:
        print_now(f"\ngo-ent swarm merge {begun.swarm_id}\n")
    merge = SwarmMergeRequest(swarm_id=begun.swarm_id)
    merged = through.call("swarm_merge", merge, SwarmMergeReply)
    if not silent:
        show_merged(merged)
    return DemoSwarmResult(result=result, merged=merged)


def _watch_swarm(through: DaemonClient, swarm: str, *, silent: bool) -> None:
    with open_swarm_watcher(through, swarm, silent=silent, owner=True) as watching:
        watching.watch(swarm)
    if watching.interrupted:
        raise KeyboardInterrupt


DEMO_TASKS = (
    SpawnRequest(
        task="Write roman.py, which turns numbers into roman numerals.",
        provider="zai/glm-4.7",
        permissions="auto",
        verify=("test $(python3 roman.py 1994) = MCMXCIV",),
    ),
    SpawnRequest(
        task="Write tests in test_slug.py that test slug.py, and run them.",
        provider="moonshotai/kimi-k2.6",
        permissions="edit",
        verify=("python3 -m unittest -q test_slug",),
    ),
    SpawnRequest(
        task="Describe slug.py in a README with an example, and note it in the changelog.",
        provider="deepseek/deepseek-flash",
        permissions="edit",
        verify=("grep -q '## Usage' README.md",),
    ),
)
EXPECTED_FILES = ("roman.py", "test_slug.py", "README.md", "CHANGELOG.md")
TICK_S = 0.1
THINKING_S = 15.0  # how long a person may think about the question
SHOWING_S = 1.0  # how long the question stands where nobody can answer it
DEMO_TIMEOUT_S = 180.0
FAREWELL = """
The models were scripted; OpenCode, the edits, the commands and the checks were real.

For real models, in a project of your own:
  export ANTHROPIC_API_KEY=…    or ZHIPU_API_KEY, DEEPSEEK_API_KEY, … or: opencode auth login
  go-ent init                   settings, and go-ent as a server for Claude Code
  go-ent doctor                 what works, what is missing
  go-ent run "a task"           a first worker"""


class DemoFollower:
    """Shows the workers, and answers the one question that they ask."""

    def __init__(self, through: DaemonClient, board: Board, keyboard: Keyboard | None) -> None:
        self._client = through
        self._board = board
        self._keyboard = keyboard
        self._views: dict[str, WorkerView] = {}
        self._question: tuple[str, PermissionAsked] | None = None
        self._question_at = 0.0
        self._started = time.monotonic()

    def until_done(self, workers: tuple[str, ...]) -> None:
        """Follow the workers until all have ended their turns."""
        self._client.watch(*workers, after=0)
        while len(self._views) < len(workers) or not self._all_ended():
            for envelope in self._client.events(TICK_S):
                view = fold_worker(self._views.get(envelope.worker), envelope)
                self._views[envelope.worker] = view
                self._show(view, envelope)
            self._answer_when_due()
            self._draw(self._status_text())
            if time.monotonic() - self._started > DEMO_TIMEOUT_S:
                raise CommandError(f"the workers were not done after {DEMO_TIMEOUT_S:.0f} s")
        self._draw("")

    def _draw(self, keys: str) -> None:
        if self._board.is_live:
            table = board_table(
                [_board_row(view) for view in self._views.values()], make_console().width, "worker"
            )
            self._board.show(drawing.Group("", table, styled_line((keys, "bold yellow"))))

    def _all_ended(self) -> bool:
        return all(view.state in ENDED_STATES for view in self._views.values())

    def _show(self, view: WorkerView, envelope: EventEnvelope) -> None:
        event = envelope.event
        who = f"{time.monotonic() - self._started:5.1f}s  {view.spawned.model:<14}  "
        if isinstance(event, PermissionAsked):
            self._question, self._question_at = (envelope.worker, event), time.monotonic()
            self._board.line(f"{who}? may it run: {visible_text(event.detail)}", "bold yellow")
            if self._keyboard:
                self._keyboard.listen()
        elif isinstance(event, PermissionAnswered | PermissionWithdrawn):
            self._question = None
            answer = event.option if isinstance(event, PermissionAnswered) else "withdrawn"
            self._board.line(f"{who}  {answer}", "yellow")
            if self._keyboard:
                self._keyboard.restore()
        elif isinstance(event, WorkerSpawned):
            self._board.line(f"{who}{event.task}")
        elif told := event_line(event):
            self._board.line(who + told[0], told[1])

    def _answer_when_due(self) -> None:
        """Answer by key, or automatically after a while."""
        if self._question is None:
            return
        key = self._keyboard.read_key() if self._keyboard else ""
        if key == "n":
            self._answer("reject")
        elif key in ("y", "\n"):
            self._answer("allow_once")
        elif time.monotonic() > self._question_at + (THINKING_S if self._keyboard else SHOWING_S):
            why = "nobody answered" if self._keyboard else "there is no terminal"
            self._board.line(f"answered yes automatically: {why}", "dim")
            self._answer("allow_once")

    def _answer(self, option: PermissionAnswer) -> None:
        assert self._question, "there is a question to answer"
        worker, question = self._question
        self._question = None
        request = AnswerRequest(worker_id=worker, permission_id=question.id, option=option)
        self._client.call("worker_answer", request, AnswerReply)

    def _status_text(self) -> str:
        if self._question is None or self._keyboard is None:
            return ""
        left = max(0.0, self._question_at + THINKING_S - time.monotonic())
        return f"May it run that?  [y] yes  [n] no  (yes in {left:.0f} s)"


def _board_row(view: WorkerView) -> BoardRow:
    now = worker_status(view)
    percent = f"{now.progress.percent}%" if now.progress.percent else ""
    until = view.updated_at if now.state in ENDED_STATES else time.time()
    shown = badge(now.state, now.evidence)
    return BoardRow(
        name=view.id,
        state=shown.words,
        provider=now.model,
        step="" if now.step == now.state else f"{percent} {now.step}",
        tokens=short_number(now.usage.total),
        cost=money(now.cost_usd) if view.calls else "",
        time=duration(until - view.started_at),
        style=shown.style,
    )


class DemoResult(Value, frozen=True, kw_only=True):
    """The outcome of the demo. `missing` are files that the workers should have written."""

    project: str
    results: tuple[Result, ...]
    costs: Costs
    missing: tuple[str, ...]
    swarm: DemoSwarmResult | None = None

    @property
    def worked(self) -> bool:
        done = all(r.state == "completed" and r.evidence == "verified" for r in self.results)
        return done and not self.missing and (self.swarm is None or self.swarm.worked)


def demo(
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the sample project.")] = False,
    json: JsonOption = False,
) -> int:
    """See go-ent work: three workers in parallel on scripted models. Needs OpenCode, but no key."""
    return run_demo(keep=keep, json=json)


def run_demo(*, keep: bool = False, json: bool = False) -> int:
    """Run the demo. Returns 0 only if all workers were verified and their files exist."""
    opencode = installed_opencode(Path.cwd(), os.environ)
    if not json:
        print_now("go-ent demo: three workers in parallel, on OpenCode, with scripted models.")
    with (
        signal_handlers(_interrupt, (signal.SIGTERM, signal.SIGHUP)),
        _report_interrupt(),
        open_demo_project(opencode, keep=keep) as stage,
    ):
        if not json:
            fate = "kept" if keep else "removed afterwards"
            print_now(f"A sample project, {fate}: {stage.project}")
            print_now("Starting; a cold OpenCode takes a few seconds.\n")
        with open_daemon_client(stage.project) as through:
            played = _run_tasks(through, stage.project, silent=json)
            if not json:
                _show_results(played)
            if played.worked and stage.has_git:
                together = run_demo_swarm(through, stage.project, silent=json)
                played = replace(played, swarm=together)
            print_reply(played, _show_farewell, json=json)
    return 0 if played.worked else 1


def _run_tasks(through: DaemonClient, project: Path, *, silent: bool) -> DemoResult:
    spawned = [through.call("worker_spawn", task, SpawnReply).worker_id for task in DEMO_TASKS]
    with open_board(silent=silent, keep=True) as board, open_keyboard() as keyboard:
        DemoFollower(through, board, None if silent else keyboard).until_done(tuple(spawned))
    costs = CostsRequest(by="provider", project_only=True)
    return DemoResult(
        project=str(project),
        results=tuple(
            through.call("worker_result", WorkerRequest(worker_id=worker), Result)
            for worker in spawned
        ),
        costs=through.call("cost_report", costs, Costs),
        missing=tuple(name for name in EXPECTED_FILES if not (project / name).is_file()),
    )


def _show_results(played: DemoResult) -> None:
    print_now()
    for task, result in zip(DEMO_TASKS, played.results, strict=True):
        print_now(f"{task.provider}: {task.task}")
        show_result(result, cwd=played.project, text=False)
        print_now(f"  it says   {result.text}\n")
    show_costs(played.costs)


def _show_farewell(played: DemoResult) -> None:
    if played.worked:
        print_now(FAREWELL)
        return
    if played.missing:
        print_notice(f"these files are missing: {', '.join(played.missing)}")
    if any(r.failure and r.failure.kind == "permission_denied" for r in played.results):
        print_notice("you answered no, which ended the worker's turn, as it should")
    print_notice("not every worker completed its task; see above")


@contextmanager
def _report_interrupt() -> Generator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print_notice("the demo and its daemon were stopped")
        raise


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
