"""Does a pattern fit, and does it say so in time?

Some patterns take longer than anybody lives to find that they do not fit, if the text is made for it, and
the text is an agent's. A search is interrupted after so much time of the processor.
"""

import re
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from goent.evals.graders.findings import Misfit

LIMIT_S: Final = 1.0


def is_found(pattern: re.Pattern[str], text: str) -> bool:
    """Raises `Misfit` if that cannot be said in time."""
    with _interrupted_after(LIMIT_S, pattern.pattern):
        return pattern.search(text) is not None


@contextmanager
def _interrupted_after(seconds: float, pattern: str) -> Generator[None]:
    """By a signal, for which Python looks while it searches; only the main thread gets any."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise Misfit(f"{pattern!r} needs more than {seconds:g} s for this text; make it simpler.")

    before = signal.signal(signal.SIGVTALRM, interrupt)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)
