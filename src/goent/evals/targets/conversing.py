"""Can a conversation be had with a target, and if not, why?"""

from typing import Final

from goent.domain.types import ONE_TURN
from goent.evals.suites import Conversation, TargetSpec

_REMEMBERING: Final = ("opencode", "goent")


def why_not(spec: TargetSpec, talk: Conversation) -> str | None:
    """In words that name what could be done; None if nothing is in the way."""
    who = f"target {spec.name!r} of the kind {spec.kind!r}"
    method = spec.settings.get("method")
    if spec.kind == "goent" and spec.settings.get("race"):
        return f"{who} lets several workers race, and a conversation is with one: take `race` away"
    if spec.kind == "goent" and method in ONE_TURN:
        return f"{who} works by the method {method!r}, which has one turn: name another `method`"
    if spec.kind in _REMEMBERING and talk.window is not None:
        return (
            f"{who} remembers all that was said: take `window_size` away, or ask a target that "
            "is told the history, such as one of the kind 'cli'"
        )
    return None
