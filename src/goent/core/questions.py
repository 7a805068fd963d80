"""Which questions of a turn are open, and why is one no longer?"""

from goent.domain.errors import RequestError
from goent.domain.events import PermissionAsked
from goent.domain.types import Answer


class Questions:
    """What the worker waits to be told in its turn; true while there is something."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._open: dict[str, PermissionAsked] = {}
        self._withdrawn: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, question: PermissionAsked) -> None:
        self._open[question.id] = question

    def take(self, permission: str, option: Answer) -> PermissionAsked:
        """The question, for whoever answers it first. Raises `RequestError` if that cannot be."""
        if reason := self._withdrawn.get(permission):
            raise RequestError(
                f"question {permission!r} of worker {self._worker!r} was withdrawn: {reason}; "
                "if it still needs the permission, it asks anew"
            )
        question = self._open.get(permission)
        if question is None:
            open_ones = ", ".join(self._open) or "none"
            raise RequestError(
                f"worker {self._worker!r} has no open question {permission!r} (open: {open_ones})"
            )
        offered = [choice.id for choice in question.options]
        if option not in offered:
            raise RequestError(f"question {permission!r} offers {', '.join(offered)}")
        return self._open.pop(permission)

    def withdraw(self, permission: str, reason: str) -> bool:
        """Whether it was still open: its answer may have been faster."""
        if self._open.pop(permission, None) is None:
            return False
        self._withdrawn[permission] = reason
        return True

    def drop_all(self) -> tuple[str, ...]:
        """Those that nobody can answer any more."""
        dropped = tuple(self._open)
        self._open.clear()
        return dropped
