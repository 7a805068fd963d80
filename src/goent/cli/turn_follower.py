"""Shows a worker's turn while it runs, and lets a person answer questions or cancel it."""

import time

from goent.cli.board import Board
from goent.cli.daemon_client import DaemonClient, cursor_before
from goent.cli.labels import duration, money, progress_bar, token_count
from goent.cli.terminal import InterruptCount, Keyboard
from goent.cli.terminal_prompt import TerminalPrompt
from goent.domain.events import (
    AnyEvent,
    BudgetWarned,
    EventEnvelope,
    FailedOver,
    FilesChanged,
    GuardedFilesChanged,
    Noticed,
    PermissionAnswered,
    PermissionAsked,
    PermissionWithdrawn,
    PlanUpdated,
    TextDelta,
    ToolCall,
    TurnEnded,
    TurnStarted,
    Verified,
    WorkerClosed,
)
from goent.domain.question_text import visible_text
from goent.domain.requests import CancelRequest
from goent.workers.views import WorkerView, fold_worker, worker_status
from goent.workers.worker_report import render_event

TICK_S = 0.1
TODO_TOOLS = ("todowrite", "todoread")


class TurnFollower:
    """Follows one turn of one worker to its end."""

    def __init__(
        self,
        through: DaemonClient,
        worker: str,
        board: Board,
        keyboard: Keyboard | None,
        interrupts: InterruptCount,
    ) -> None:
        self._client = through
        self._worker = worker
        self._board = board
        self._asking = TerminalPrompt(through, board, keyboard)
        self._interrupts = interrupts
        self._view: WorkerView | None = None
        self._started = time.monotonic()
        self._message: tuple[type, str] | None = None
        self._cancelled = False

    def follow(self, turn: int) -> None:
        """Show the turn from its beginning; returns when it has ended."""
        self._client.watch(self._worker, after=cursor_before(self._worker, self._client))
        shown = False
        while True:
            for envelope in self._client.events(TICK_S):
                self._view = fold_worker(self._view, envelope)
                event = envelope.event
                shown = shown or (isinstance(event, TurnStarted) and event.turn >= turn)
                if shown:
                    self._show(envelope)
                if _is_end(event, turn):
                    return
            self._handle_input()
            if self._view:
                self._board.show(self._status_text(self._view))

    def _handle_input(self) -> None:
        """Cancel on Ctrl-C; answer the open question by a key."""
        if self._interrupts.count and not self._cancelled:
            self._cancelled = True
            self._board.line("cancelling; Ctrl-C again exits immediately", "yellow")
            request = CancelRequest(worker_id=self._worker, reason="Ctrl-C")
            self._client.send("worker_cancel", request)
        if self._view and self._view.questions:
            self._asking.read_answer(self._worker, self._view.questions[0])

    def _show(self, envelope: EventEnvelope) -> None:
        event = envelope.event
        if isinstance(event, TextDelta):
            self._write_text(event)
            return
        match event:
            case PermissionAsked():
                self._asking.ask(self._worker, event)
            case PermissionAnswered():
                words = f": {visible_text(event.message)}" if event.message else ""
                self._board.line(f"  {event.option} (by {event.by}){words}", "cyan")
                self._next_question()
            case PermissionWithdrawn():
                self._board.line(f"  withdrawn: {event.reason}", "cyan")
                self._next_question()
            case _:
                if told := event_line(event):
                    self._board.line(*told)

    def _write_text(self, event: TextDelta) -> None:
        message = (type(event), event.message)
        if message != self._message:
            self._board.end_line()
            self._message = message
        self._board.write_words(event.text)

    def _next_question(self) -> None:
        if self._view and not self._view.questions:
            self._asking.stop()

    def _status_text(self, view: WorkerView) -> str:
        if view.questions and (choices := self._asking.key_hints(view.questions[0])):
            return choices
        now = worker_status(view)
        parts = [now.state, now.step if now.step != now.state else ""]
        if now.progress.percent is not None:
            parts.append(progress_bar(now.progress.percent))
        parts += [token_count(view.usage), money(now.cost_usd) if view.calls else ""]
        parts.append(duration(time.monotonic() - self._started))
        return " · ".join(part for part in parts if part)


def _is_end(event: AnyEvent, turn: int) -> bool:
    return isinstance(event, WorkerClosed) or (isinstance(event, TurnEnded) and event.turn >= turn)


def event_line(event: AnyEvent) -> tuple[str, str] | None:
    """The line for an event, and its style; None for events that have no line of their own."""
    match event:
        case PlanUpdated():
            done = sum(entry.status == "completed" for entry in event.entries)
            now = next((e.text for e in event.entries if e.status == "in_progress"), "")
            return f"☰ {done}/{len(event.entries)} {now}".rstrip(), "dim"
        case ToolCall() if event.tool not in TODO_TOOLS:
            style = "red" if event.status == "failed" else "cyan"
        case Verified():
            style = "green" if all(check.exit == 0 for check in event.checks) else "red"
        case Noticed() | FailedOver() | BudgetWarned() | GuardedFilesChanged() | FilesChanged():
            style = "yellow"
        case _:
            return None
    text = render_event(event)
    return (text, style) if text else None
