"""Shows permission questions at the terminal and reads the keys that answer them.

A question may be answered from several clients; the first answer wins.
"""

import re
import sys
import time
from datetime import datetime
from typing import Protocol

from goent.cli.board import Board
from goent.cli.daemon_client import CommandError, DaemonClient
from goent.cli.labels import duration
from goent.cli.terminal import Keyboard, make_console, print_notice
from goent.domain.question_text import always_rule, fit_rows, one_line, visible_text
from goent.domain.replies import AnswerReply
from goent.domain.requests import AnswerRequest
from goent.domain.types import PermissionAnswer, PermissionOption

ANSWER_KEYS: dict[str, PermissionAnswer] = {"y": "allow_once", "a": "allow_always", "n": "reject"}
CHOICE_LABELS = {"y": "[y] yes, once", "a": "[a] yes, always", "n": "[n] no"}
INSTEAD_KEY, VIEW_KEY = "i", "v"
ENTER, ESCAPE, ERASE = "\r\n", "\x1b", "\x7f\b"
MESSAGE_NOT_PASSED = (
    "this agent takes no message with a rejection. If the rejection ends its turn, the next "
    "`go-ent prompt {}` passes it on; if not, repeat it there"
)
MIN_ROWS = 8
ROWS_AROUND = (
    12  # rows for the lines around a question: why, the rule, the foot, what was there before
)
TYPED_WIDTH = 30  # characters of what is being typed, in the foot
STDERR_WIDTH = 300  # characters of a question on stderr
_ESCAPE_SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]")  # a key with an arrow, and its like
DIFF_TOOLS = ("edit", "external_directory")


class TerminalQuestion(Protocol):
    """A permission question, from an event or a status."""

    @property
    def id(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def options(self) -> tuple[PermissionOption, ...]: ...
    @property
    def reason(self) -> str: ...
    @property
    def always(self) -> str | tuple[str, ...]: ...
    @property
    def expires_at(self) -> str | float | None: ...


class TerminalPrompt:
    """Shows questions on the board and takes answers from the keyboard, if there is one."""

    def __init__(self, through: DaemonClient, board: Board, keyboard: Keyboard | None) -> None:
        self._client = through
        self._board = board
        self._keyboard = keyboard
        self._message: str | None = None  # what to do instead, as typed so far
        self._message_for = ""  # the question that the message belongs to

    def ask(self, worker: str, question: TerminalQuestion, who: str = "") -> None:
        """Ask at the keyboard, or show the command that answers."""
        self._board.show("")  # the keys of an earlier question do not answer this one
        self._show(question, who, whole=not sys.stdout.isatty())
        if self._keyboard:
            if self._message is None:
                self._keyboard.listen()
            return
        options = "|".join(option.id for option in question.options)
        hint = f"go-ent answer {worker} {question.id} {options}"
        asks = (
            f"{who or worker} asks for {question.tool}: {one_line(question.detail, STDERR_WIDTH)}"
        )
        print_notice(f"{asks}; answer with: {hint}")

    def _show(self, question: TerminalQuestion, who: str = "", *, whole: bool) -> None:
        prefix = f"{who} asks for " if who else ""
        text = f"? {prefix}{question.tool}: {visible_text(question.detail)}"
        if not whole:
            size = make_console().size
            how = "press v to see all" if self._keyboard else ""
            text = fit_rows(text, size.width, max(MIN_ROWS, size.height - ROWS_AROUND), how)
        head, *more = text.split("\n")
        self._board.line(head, "bold yellow")
        for line in more:
            self._board.line(line, diff_style(line) if question.tool in DIFF_TOOLS else "yellow")
        if question.reason:
            self._board.line(f"  {question.reason}", "yellow")
        if rule := lasting_rule(question):
            self._board.line(f"  always: {rule}", "dim")

    def read_answer(self, worker: str, question: TerminalQuestion) -> PermissionAnswer | None:
        """The answer that was typed; None if there is none, or it came too late."""
        if self._keyboard is None:
            return None
        if self._message is not None:
            return self._read_message(worker, question)
        match self._keyboard.read_key():
            case key if key == VIEW_KEY:
                self._show(question, whole=True)
            case key if key == INSTEAD_KEY and _offers(question, "reject"):
                self._message, self._message_for = "", f"{worker} {question.id}"
            case key if (option := ANSWER_KEYS.get(key)) and _offers(question, option):
                return self._answer(worker, question, option)
            case _:
                pass
        return None

    def _read_message(self, worker: str, question: TerminalQuestion) -> PermissionAnswer | None:
        assert self._keyboard and self._message is not None, "somebody is typing"
        if self._message_for != f"{worker} {question.id}":
            self._board.line("  that question is no longer open", "dim")
            self._message = None
            return None
        typed = self._keyboard.read_text()
        if typed == ESCAPE:
            self._message = None
            return None
        for letter in _ESCAPE_SEQUENCE.sub("", typed):
            if letter in ENTER:
                words, self._message = self._message.strip(), None
                return self._answer(worker, question, "reject", words) if words else None
            if letter in ERASE:
                self._message = self._message[:-1]
            elif letter.isprintable():
                self._message += letter
        return None

    def _answer(
        self, worker: str, question: TerminalQuestion, option: PermissionAnswer, message: str = ""
    ) -> PermissionAnswer | None:
        request = AnswerRequest(
            worker_id=worker, permission_id=question.id, option=option, message=message
        )
        try:
            answered = self._client.call("worker_answer", request, AnswerReply)
        except CommandError:
            self._board.line("  already answered from elsewhere", "dim")
            return None
        if answered.message_passed is False:
            self._board.line(f"  {MESSAGE_NOT_PASSED.format(worker)}", "yellow")
        return option

    def key_hints(self, question: TerminalQuestion) -> str:
        """The keys that work now, and the time left; nothing without a keyboard."""
        if self._keyboard is None:
            return ""
        if self._message is not None:
            typed = (
                self._message
                if len(self._message) <= TYPED_WIDTH
                else "…" + self._message[-TYPED_WIDTH:]
            )
            return f"no, do this instead: {typed}▏ (Enter sends, Esc goes back)"
        keys = [
            CHOICE_LABELS[key] for key, option in ANSWER_KEYS.items() if _offers(question, option)
        ]
        keys += [f"[{INSTEAD_KEY}] no, but …"] if _offers(question, "reject") else []
        return "  ".join([time_left(question), *keys, f"[{VIEW_KEY}] view all"]).lstrip()

    def stop(self) -> None:
        """Restore the keyboard: no question is open."""
        self._message = None
        if self._keyboard:
            self._keyboard.restore()


def _offers(question: TerminalQuestion, option: PermissionAnswer) -> bool:
    return option in [each.id for each in question.options]


def lasting_rule(question: TerminalQuestion) -> str:
    """The rule that "always" would write."""
    always = question.always
    return always if isinstance(always, str) else always_rule(question.tool, always)


def time_left(question: TerminalQuestion) -> str:
    """How long until the question is answered with no."""
    at = question.expires_at
    if at is None:
        return ""
    deadline = datetime.fromisoformat(at).timestamp() if isinstance(at, str) else at
    return f"{duration(max(0.0, deadline - time.time()))} left"


def diff_style(line: str) -> str:
    """The colour of a line of a diff."""
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
