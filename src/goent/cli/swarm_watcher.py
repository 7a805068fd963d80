"""Shows a swarm until it ends, and lets a person answer questions or cancel it.

A terminal shows the table; anything else gets a line for each change of a task's state.
"""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager

from goent.cli.board import Board, open_board
from goent.cli.daemon_client import CommandError, DaemonClient, DaemonDisconnected, status_of
from goent.cli.labels import badge, duration, money
from goent.cli.swarm_display import DrawingSize, step_text, swarm_table, task_style
from goent.cli.terminal import (
    InterruptCount,
    Keyboard,
    count_interrupts,
    make_console,
    open_keyboard,
)
from goent.cli.terminal_prompt import TerminalPrompt
from goent.domain.replies import Question
from goent.domain.swarm_messages import (
    ENDED_SWARM_STATES,
    ENDED_TASK_STATES,
    SwarmCancelRequest,
    SwarmRequest,
    SwarmStatus,
    TaskLine,
)
from goent.domain.types import Value

TICK_S = 0.1
TICKS_PER_LOOK = 3  # the keyboard is read every tick, the swarm less often
SETTLED_S = 10.0  # a daemon that ends within this time of the last one is not replaced
INTERRUPTED = 130


class _SwarmQuestion(Value, frozen=True, kw_only=True):
    """A question, and the task and worker that ask it."""

    task: str
    worker: str
    question: Question


class SwarmWatcher:
    """Shows a swarm until it ends. With `owner`, Ctrl-C cancels it; without, it only stops watching."""

    def __init__(
        self,
        through: DaemonClient,
        board: Board,
        keyboard: Keyboard | None,
        interrupts: InterruptCount,
        *,
        owner: bool,
    ) -> None:
        self._client = through
        self._board = board
        self._asking = TerminalPrompt(through, board, keyboard)
        self._interrupts = interrupts
        self._owner = owner
        self._table = sys.stdout.isatty()
        self._states: dict[str, str] = {}
        self._open_questions: dict[str, _SwarmQuestion] = {}
        self._cancelled = False
        self.interrupted = False
        self._reconnected_at = -SETTLED_S

    def watch(self, swarm: str) -> SwarmStatus:
        """Returns when the swarm has ended, or Ctrl-C stops watching it."""
        while True:
            try:
                now = self._client.call("swarm_status", SwarmRequest(swarm_id=swarm), SwarmStatus)
                self._show(now)
                if now.state in ENDED_SWARM_STATES or (self._interrupts.count and not self._owner):
                    self._draw(now)
                    return now
                self._wait(now)
            except DaemonDisconnected as gone:
                if time.monotonic() < self._reconnected_at + SETTLED_S:
                    raise DaemonDisconnected(
                        f"{gone.reason}, and {swarm} with it; {_follow_hint(swarm)}"
                    ) from None
                self._reconnect()

    def _show(self, now: SwarmStatus) -> None:
        if not self._states:
            name = f" {now.swarm}" if now.swarm and now.swarm != now.swarm_id else ""
            tasks = f"{now.total} task{'s' * (now.total > 1)}"
            self._board.line(f"{now.swarm_id}{name}: {tasks}", "dim")
        for task in now.tasks:
            self._print_task(task)
        self._note_questions(now)

    def _wait(self, now: SwarmStatus) -> None:
        for _ in range(TICKS_PER_LOOK):
            self._draw(now)
            if self._handle_input(now.swarm_id):
                return
            time.sleep(TICK_S)

    def _reconnect(self) -> None:
        """The swarm is journaled, and the next daemon resumes it."""
        self._reconnected_at = time.monotonic()
        self._board.line("the daemon ended; the next one resumes the swarm", "yellow")
        self._client.reconnect()
        self._cancelled = False

    def _draw(self, now: SwarmStatus) -> None:
        if not self._table:
            return
        size = make_console().size
        first = next(iter(self._open_questions.values()), None)
        keys = self._asking.key_hints(first.question) if first else ""
        if first and keys and len(self._open_questions) > 1:
            keys = f"{first.task}: {keys}"
        room = DrawingSize(width=size.width, height=size.height - 1)
        self._board.show(swarm_table(now, room, keys))

    def _print_task(self, task: TaskLine) -> None:
        """A line for a new state; beside the table only for failures."""
        who = f"{task.id} {task.worker_id or ''}"  # in a race several have the task
        if self._states.get(who) == task.state:
            return
        unstarted = who not in self._states and task.state == "pending"
        self._states[who] = task.state
        if unstarted or (self._table and task.state not in ("failed", "blocked")):
            return
        self._board.line(task_line(task), task_style(task))

    def _note_questions(self, now: SwarmStatus) -> None:
        before, self._open_questions = self._open_questions, {}
        for task in now.tasks:
            if task.state != "waiting" or task.worker_id is None:
                continue
            question = status_of(task.worker_id, self._client).permission
            if question:
                asked = _SwarmQuestion(task=task.id, worker=task.worker_id, question=question)
                self._open_questions[f"{task.worker_id} {question.id}"] = asked
        for key, asked in self._open_questions.items():
            if key not in before:
                self._asking.ask(asked.worker, asked.question, f"{asked.task} ({asked.worker})")
        if before and not self._open_questions:
            self._asking.stop()

    def _handle_input(self, swarm: str) -> bool:
        """Cancel on Ctrl-C, answer by a key; True if the swarm should be looked at immediately."""
        if self._interrupts.count and not self._owner:
            return True
        if self._interrupts.count and not self._cancelled:
            self._cancelled = self.interrupted = True
            self._board.line("cancelling; Ctrl-C again exits immediately", "yellow")
            request = SwarmCancelRequest(swarm_id=swarm, reason="Ctrl-C")
            self._client.send("swarm_cancel", request)
        for asked in list(self._open_questions.values())[:1]:
            option = self._asking.read_answer(asked.worker, asked.question)
            if option:
                self._board.line(f"  {asked.task}: {option}", "cyan")
                return True
        return False


def task_line(task: TaskLine) -> str:
    """A task's new state; if it has ended, its time, cost and result."""
    where = f" on {task.provider}" if task.provider else ""
    took = (duration(task.seconds or 0), money(task.cost_usd) if task.tokens else "")
    over = task.state in ENDED_TASK_STATES and task.seconds is not None
    spent = f" ({', '.join(part for part in took if part)})" if over else ""
    step = step_text(task)
    shown = badge(task.state, task.evidence)
    return f"{shown.mark} {task.id} {shown.words}{where}{spent}" + (f": {step}" if step else "")


@contextmanager
def open_swarm_watcher(
    through: DaemonClient, swarm: str, *, silent: bool, owner: bool
) -> Generator[SwarmWatcher]:
    """The board and the keyboard for watching a swarm; the terminal is restored afterwards."""
    leaving = f"{swarm} may still be running: `go-ent swarm cancel {swarm}` ends it"
    try:
        with (
            count_interrupts() as interrupts,
            open_keyboard() as keyboard,
            open_board(silent=silent) as board,
        ):
            yield SwarmWatcher(
                through, board, None if silent else keyboard, interrupts, owner=owner
            )
    except KeyboardInterrupt:
        raise CommandError(leaving, INTERRUPTED) from None


def _follow_hint(swarm: str) -> str:
    return f"`go-ent swarm status {swarm} --follow` starts a new one and follows it"
