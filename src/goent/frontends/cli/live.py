"""What does a person see of a turn while it runs, and what can they do about it?

The view is folded from the same events as the daemon's own.
"""

import time

from goent.core.transcript import render
from goent.core.views import WorkerView, fold, status
from goent.domain.events import (
    AnyEvent,
    BudgetWarned,
    Envelope,
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
from goent.domain.question_text import visible
from goent.domain.requests import CancelRequest
from goent.frontends.cli.asking import Asking
from goent.frontends.cli.client import Daemon, cursor_before
from goent.frontends.cli.keys import Interrupts, Keyboard
from goent.frontends.cli.screen import Screen
from goent.frontends.cli.words import bar, duration, money, tokens

TICK = 0.1
TODO_TOOLS = ("todowrite", "todoread")


class Follower:
    """Follows one turn of one worker to its end."""

    def __init__(
        self,
        through: Daemon,
        worker: str,
        screen: Screen,
        keyboard: Keyboard | None,
        interrupts: Interrupts,
    ) -> None:
        self._through = through
        self._worker = worker
        self._screen = screen
        self._asking = Asking(through, screen, keyboard)
        self._interrupts = interrupts
        self._view: WorkerView | None = None
        self._begun = time.monotonic()
        self._message: tuple[type, str] | None = None
        self._cancelled = False

    def follow(self, turn: int) -> None:
        """Show the turn from its beginning; returns when it has ended."""
        self._through.watch(self._worker, after=cursor_before(self._worker, self._through))
        shown = False
        while True:
            for envelope in self._through.events(TICK):
                self._view = fold(self._view, envelope)
                event = envelope.event
                shown = shown or (isinstance(event, TurnStarted) and event.turn >= turn)
                if shown:
                    self._show(envelope)
                if _is_end(event, turn):
                    return
            self._heed()
            if self._view:
                self._screen.foot(self._foot(self._view))

    def _heed(self) -> None:
        """What the person at the keyboard wants."""
        if self._interrupts.count and not self._cancelled:
            self._cancelled = True
            self._screen.line("cancelling; Ctrl-C again leaves at once", "yellow")
            request = CancelRequest(worker_id=self._worker, reason="Ctrl-C")
            self._through.send("worker_cancel", request)
        if self._view and self._view.questions:
            self._asking.heed(self._worker, self._view.questions[0])

    def _show(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, TextDelta):
            self._say(event)
            return
        match event:
            case PermissionAsked():
                self._asking.put(self._worker, event)
            case PermissionAnswered():
                words = f": {visible(event.message)}" if event.message else ""
                self._screen.line(f"  {event.option} (by {event.by}){words}", "cyan")
                self._next_question()
            case PermissionWithdrawn():
                self._screen.line(f"  withdrawn: {event.reason}", "cyan")
                self._next_question()
            case _:
                if told := told_line(event):
                    self._screen.line(*told)

    def _say(self, event: TextDelta) -> None:
        message = (type(event), event.message)
        if message != self._message:
            self._screen.end_words()
            self._message = message
        self._screen.words(event.text)

    def _next_question(self) -> None:
        if self._view and not self._view.questions:
            self._asking.rest()

    def _foot(self, view: WorkerView) -> str:
        if view.questions and (choices := self._asking.choices(view.questions[0])):
            return choices
        now = status(view)
        parts = [now.state, now.step if now.step != now.state else ""]
        if now.progress.percent is not None:
            parts.append(bar(now.progress.percent))
        parts += [tokens(view.usage), money(now.cost_usd) if view.calls else ""]
        parts.append(duration(time.monotonic() - self._begun))
        return " · ".join(part for part in parts if part)


def _is_end(event: AnyEvent, turn: int) -> bool:
    return isinstance(event, WorkerClosed) or (isinstance(event, TurnEnded) and event.turn >= turn)


def told_line(event: AnyEvent) -> tuple[str, str] | None:
    """The line that tells of an event, and its style; None for what is said in other ways."""
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
    text = render(event)
    return (text, style) if text else None
