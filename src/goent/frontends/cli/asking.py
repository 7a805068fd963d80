"""How is a worker's permission question put to a person, and what do they answer?

It may be answered here or anywhere else, and the first answer wins.
"""

from typing import Protocol

from goent.domain.replies import Answered
from goent.domain.requests import AnswerRequest
from goent.domain.types import Answer, PermissionOption
from goent.frontends.cli.client import Daemon, Trouble
from goent.frontends.cli.keys import Keyboard
from goent.frontends.cli.screen import Screen, clean, complain

KEYS: dict[str, Answer] = {"y": "allow_once", "a": "allow_always", "n": "reject"}
CHOICES = {"y": "[y] yes, once", "a": "[a] yes, always", "n": "[n] no"}


class Asked(Protocol):
    """A permission question, as an event or a status tells it."""

    @property
    def id(self) -> str: ...
    @property
    def tool(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def options(self) -> tuple[PermissionOption, ...]: ...


class Asking:
    """Puts questions on the screen and takes answers from the keyboard, if somebody sits there."""

    def __init__(self, through: Daemon, screen: Screen, keyboard: Keyboard | None) -> None:
        self._through = through
        self._screen = screen
        self._keyboard = keyboard

    def put(self, worker: str, question: Asked, who: str = "") -> None:
        """Ask the person here, or say how it can be answered."""
        prefix = f"{who} asks for " if who else ""
        self._screen.line(f"? {prefix}{question.tool}: {question.detail}", "bold yellow")
        if self._keyboard:
            self._keyboard.listen()
            return
        options = "|".join(option.id for option in question.options)
        hint = f"go-ent answer {worker} {question.id} {options}"
        asks = f"{who or worker} asks for {question.tool}: {question.detail}"
        complain(f"{clean(asks)}; answer with: {hint}")

    def heed(self, worker: str, question: Asked) -> Answer | None:
        """Bring back the answer that was typed; None if there is none, or it came too late."""
        option = KEYS.get(self._keyboard.key()) if self._keyboard else None
        if option is None or option not in [o.id for o in question.options]:
            return None
        request = AnswerRequest(worker_id=worker, permission_id=question.id, option=option)
        try:
            self._through.call("worker_answer", request, Answered)
        except Trouble:
            self._screen.line("  somebody else was faster", "dim")
            return None
        return option

    def choices(self, question: Asked) -> str:
        """The keys that count now; nothing where there is no keyboard."""
        if self._keyboard is None:
            return ""
        offered = {option.id for option in question.options}
        return "  ".join(CHOICES[key] for key, option in KEYS.items() if option in offered)

    def rest(self) -> None:
        """No question is open."""
        if self._keyboard:
            self._keyboard.rest()
