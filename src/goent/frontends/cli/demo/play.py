"""The demo's play: three tasks at once, one question, what came of it all; then a swarm."""

import os
import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from msgspec.structs import replace

from goent.core.views import WorkerView, fold
from goent.doctor import installed_opencode
from goent.domain.events import (
    Envelope,
    PermissionAnswered,
    PermissionAsked,
    PermissionWithdrawn,
    WorkerSpawned,
)
from goent.domain.provider_replies import Costs
from goent.domain.question_text import visible
from goent.domain.replies import Answered, Result, Spawned
from goent.domain.requests import AnswerRequest, CostsRequest, SpawnRequest, WorkerRequest
from goent.domain.types import ENDED, Answer, Value
from goent.frontends.cli.client import Daemon, Trouble, daemon
from goent.frontends.cli.demo.board import Board, open_board
from goent.frontends.cli.demo.stage import open_stage
from goent.frontends.cli.demo.together import Together, play_together
from goent.frontends.cli.keys import Keyboard, open_keyboard
from goent.frontends.cli.live import told_line
from goent.frontends.cli.screen import complain, say
from goent.frontends.cli.show import print_json, show_result
from goent.frontends.cli.spending import show_costs

TASKS = (
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
EXPECTED = ("roman.py", "test_slug.py", "README.md", "CHANGELOG.md")
TICK = 0.1
THINKING_S = 15.0  # how long a person may think about the question
SHOWING_S = 1.0  # how long the question stands where nobody can answer it
PATIENCE_S = 180.0
FAREWELL = """
The models were scripted; OpenCode, the edits, the commands and the checks were real.

For real models, in a project of your own:
  export ANTHROPIC_API_KEY=…    or ZHIPU_API_KEY, DEEPSEEK_API_KEY, … or: opencode auth login
  go-ent init                   settings, and go-ent as a server for Claude Code
  go-ent doctor                 what is there, what is missing
  go-ent run "a task"           a first worker"""


class Play:
    """The workers as the audience sees them, and the one question they get."""

    def __init__(self, through: Daemon, board: Board, keyboard: Keyboard | None) -> None:
        self._through = through
        self._board = board
        self._keyboard = keyboard
        self._views: dict[str, WorkerView] = {}
        self._asked: tuple[str, PermissionAsked] | None = None
        self._asked_at = 0.0
        self._begun = time.monotonic()

    def until_done(self, workers: tuple[str, ...]) -> None:
        """Show everything until all workers have ended their turn."""
        self._through.watch(*workers, after=0)
        while len(self._views) < len(workers) or not self._all_ended():
            for envelope in self._through.events(TICK):
                view = fold(self._views.get(envelope.worker), envelope)
                self._views[envelope.worker] = view
                self._show(view, envelope)
            self._consider()
            self._board.draw(self._views, self._foot())
            if time.monotonic() - self._begun > PATIENCE_S:
                raise Trouble(f"the workers were not done after {PATIENCE_S:.0f} s")
        self._board.draw(self._views, "")

    def _all_ended(self) -> bool:
        return all(view.state in ENDED for view in self._views.values())

    def _show(self, view: WorkerView, envelope: Envelope) -> None:
        event = envelope.event
        who = f"{time.monotonic() - self._begun:5.1f}s  {view.spawned.model:<14}  "
        if isinstance(event, PermissionAsked):
            self._asked, self._asked_at = (envelope.worker, event), time.monotonic()
            self._board.line(f"{who}? may it run: {visible(event.detail)}", "bold yellow")
            if self._keyboard:
                self._keyboard.listen()
        elif isinstance(event, PermissionAnswered | PermissionWithdrawn):
            self._asked = None
            answer = event.option if isinstance(event, PermissionAnswered) else "withdrawn"
            self._board.line(f"{who}  {answer}", "yellow")
            if self._keyboard:
                self._keyboard.rest()
        elif isinstance(event, WorkerSpawned):
            self._board.line(f"{who}{event.task}")
        elif told := told_line(event):
            self._board.line(who + told[0], told[1])

    def _consider(self) -> None:
        """The question is answered by the person, or for them when they do not."""
        if self._asked is None:
            return
        key = self._keyboard.key() if self._keyboard else ""
        if key == "n":
            self._answer("reject")
        elif key in ("y", "\n"):
            self._answer("allow_once")
        elif time.monotonic() > self._asked_at + (THINKING_S if self._keyboard else SHOWING_S):
            why = "nobody answered" if self._keyboard else "there is no terminal to ask at"
            self._board.line(f"the demo says yes by itself: {why}", "dim")
            self._answer("allow_once")

    def _answer(self, option: Answer) -> None:
        assert self._asked, "there is a question to answer"
        worker, question = self._asked
        self._asked = None
        request = AnswerRequest(worker_id=worker, permission_id=question.id, option=option)
        self._through.call("worker_answer", request, Answered)

    def _foot(self) -> str:
        if self._asked is None or self._keyboard is None:
            return ""
        left = max(0.0, self._asked_at + THINKING_S - time.monotonic())
        return f"\nMay it run that?  [y] yes  [n] no  (yes in {left:.0f} s)"


class Played(Value, frozen=True, kw_only=True):
    """What came of the demonstration. `missing` are files that the workers should have written."""

    project: str
    results: tuple[Result, ...]
    costs: Costs
    missing: tuple[str, ...]
    swarm: Together | None = None

    @property
    def worked(self) -> bool:
        done = all(r.state == "completed" and r.evidence == "verified" for r in self.results)
        return done and not self.missing and (self.swarm is None or self.swarm.worked)


def run_demo(*, keep: bool = False, json: bool = False) -> int:
    """Play. 0 only if all workers really completed and their files are there."""
    opencode = installed_opencode(Path.cwd(), os.environ)
    if not json:
        say("go-ent demo: three workers at once, on OpenCode, with scripted models.")
    with _ended_by_signals(), _farewell(), open_stage(opencode, keep=keep) as stage:
        if not json:
            fate = "it stays" if keep else "gone afterwards"
            say(f"A sample project, {fate}: {stage.project}")
            say("Starting; a cold OpenCode takes a few seconds.\n")
        with daemon(stage.project) as through:
            played = _play(through, stage.project, silent=json)
            if not json:
                _show(played)
            if played.worked and stage.has_git:
                together = play_together(through, stage.project, silent=json)
                played = replace(played, swarm=together)
            if json:
                print_json(played)
            else:
                _part(played)
    return 0 if played.worked else 1


def _play(through: Daemon, project: Path, *, silent: bool) -> Played:
    spawned = [through.call("worker_spawn", task, Spawned).worker_id for task in TASKS]
    with open_board(silent=silent) as board, open_keyboard() as keyboard:
        Play(through, board, None if silent else keyboard).until_done(tuple(spawned))
    costs = CostsRequest(by="provider", project_only=True)
    return Played(
        project=str(project),
        results=tuple(_result(worker, through) for worker in spawned),
        costs=through.call("cost_report", costs, Costs),
        missing=tuple(name for name in EXPECTED if not (project / name).is_file()),
    )


def _result(worker: str, through: Daemon) -> Result:
    return through.call("worker_result", WorkerRequest(worker_id=worker), Result)


def _show(played: Played) -> None:
    say()
    for task, result in zip(TASKS, played.results, strict=True):
        say(f"{task.provider}: {task.task}")
        show_result(result, cwd=played.project, text=False)
        say(f"  it says   {result.text}\n")
    show_costs(played.costs)


def _part(played: Played) -> None:
    if played.worked:
        say(FAREWELL)
        return
    if played.missing:
        complain(f"these files should be there: {', '.join(played.missing)}")
    if any(r.failure and r.failure.kind == "permission_denied" for r in played.results):
        complain("you said no, and that ended the worker's turn, as it should")
    complain("not every worker completed its task; see above")


@contextmanager
def _farewell() -> Generator[None]:
    try:
        yield
    except KeyboardInterrupt:
        complain("the demo was stopped, and its daemon with it")
        raise


@contextmanager
def _ended_by_signals() -> Generator[None]:
    """A closed terminal or a `kill` leaves as little behind as Ctrl-C."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signals = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, leave) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
