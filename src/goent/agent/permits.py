"""May a call be run: by the session's mode, by what its user has allowed before, or by asking?"""

from typing import Literal, get_args

from goent.agent.events import Kind
from goent.agent.ports import Intent, Need, Permission
from goent.domain.errors import RequestError
from goent.domain.types import Value
from goent.policy.wildcards import matches

Mode = Literal["ask", "accept-edits", "plan"]
MODES: tuple[Mode, ...] = get_args(Mode)
LOOKING: frozenset[Kind] = frozenset({"read", "search", "think", "fetch"})
PLANNING = (
    "The session is in plan mode: nothing may be changed or run. Say what you would do; the user "
    "leaves plan mode to have it done."
)


class Verdict(Value, frozen=True, kw_only=True):
    """`reason` is what the model is told of a no."""

    action: Literal["allow", "ask", "deny"]
    reason: str = ""


class Permits:
    """What one session's user has decided so far."""

    def __init__(self, mode: Mode = "ask") -> None:
        self.mode: Mode = mode
        self._words: set[tuple[Permission, str]] = set()  # granted as they are
        self._wildcards: set[tuple[Permission, str]] = set()

    def set_mode(self, mode: str) -> None:
        for known in MODES:
            if known == mode:
                self.mode = known
                return
        raise RequestError(f"there is no mode {mode!r}; one of: {', '.join(MODES)}")

    def judge(self, intent: Intent) -> Verdict:
        need = intent.need
        if need is None:
            return Verdict(action="allow")
        if self.mode == "plan" and intent.kind not in LOOKING:
            return Verdict(action="deny", reason=PLANNING)
        if self.mode == "accept-edits" and need.permission == "edit" and not need.reason:
            return Verdict(action="allow")
        covered = need.patterns and all(self._covers(need, pattern) for pattern in need.patterns)
        return Verdict(action="allow" if covered else "ask")

    def grant(self, need: Need) -> None:
        """An "always", for the rest of the session."""
        kept = self._words if need.exact else self._wildcards
        kept.update((need.permission, words) for words in need.always or need.patterns)

    def _covers(self, need: Need, pattern: str) -> bool:
        words = (need.permission, pattern)
        if words in self._words or words in self._wildcards:
            return True
        return not need.exact and any(
            permission == need.permission and matches(wildcard, pattern)
            for permission, wildcard in self._wildcards
        )
