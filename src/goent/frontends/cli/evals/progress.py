"""What does a person see of a run while it runs?

A terminal has a board on stderr that is drawn a few times a second, however fast cases end. Anything
else gets a line for each case that ended, and no cursor is moved. stdout is for what comes at the end.
"""

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from goent.evals.ports import Attempt, LogChosen
from goent.evals.reports.evidence import in_short, reason_of
from goent.evals.reports.words import took
from goent.evals.rows import Row
from goent.evals.running.watching import Planned, Watcher
from goent.evals.traces import TargetFailure
from goent.frontends.cli.evals.drawing import again_line, draw
from goent.frontends.cli.evals.tally import Again, Tally
from goent.frontends.cli.evals.wording import case_words, shortened, sign
from goent.frontends.cli.screen import clean, say_aside
from goent.frontends.cli.words import money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

HERTZ = 8
LOGS = "OpenCode logs:"


class Silent:
    """For `--json` without a terminal: only what must be known is said."""

    def __init__(self) -> None:
        self._tally = Tally(time.monotonic)
        self._logs: dict[str, None] = {}

    def planned(self, plan: Planned) -> None:
        self._tally.planned(plan)

    def began(self, attempt: Attempt) -> None:
        self._tally.began(attempt)

    def log(self, chosen: LogChosen) -> None:
        self._show_log(chosen)

    def failed(
        self, attempt: Attempt, failure: TargetFailure, *, again_in_s: float, by: str
    ) -> None:
        self._tally.failed(Again(attempt, failure, again_in_s, by))

    def ended(self, row: Row) -> None:
        self._tally.ended(row)

    def warned(self, text: str) -> None:
        self._print(f"go-ent: {clean(text)}", "yellow")

    def _print(self, line: str, style: str = "") -> None:
        say_aside(line)

    def _show_log(self, chosen: LogChosen) -> None:
        """Each once, and as soon as it is chosen: somebody may want to follow it."""
        if chosen.file_path in self._logs:
            return
        if not self._logs:
            self._print(LOGS, "bold")
        self._logs[chosen.file_path] = None
        which = " ".join(filter(None, (chosen.eval_case_id, _attempt(chosen))))
        whose = f"{chosen.target_name} {which}".rstrip()
        self._print(clean(f"  log {len(self._logs)}: {chosen.file_path}  ({whose})"), "dim")


class Lines(Silent):
    """One line for each trial that ended, and each attempt that is made again."""

    def planned(self, plan: Planned) -> None:
        super().planned(plan)
        self._print(clean(plan_words(plan)))

    def failed(
        self, attempt: Attempt, failure: TargetFailure, *, again_in_s: float, by: str
    ) -> None:
        super().failed(attempt, failure, again_in_s=again_in_s, by=by)
        self._print(again_line(Again(attempt, failure, again_in_s, by)))

    def ended(self, row: Row) -> None:
        super().ended(row)
        self._print(f"{self._tally.done}/{self._tally.total} {ended_line(row)}")


class Board(Silent):
    """A terminal. Whatever is told is only counted; the board is drawn by a thread of its own."""

    def __init__(self, console: "Console") -> None:
        super().__init__()
        self._console = console
        self._out = Path()
        self._reasons: dict[tuple[object, int], str] = {}

    def planned(self, plan: Planned) -> None:
        super().planned(plan)
        self._out = plan.out
        self._print(clean(plan_words(plan)), "dim")

    def drawn(self) -> "RenderableType":
        now = self._tally.look()
        shown = {(one.key, one.trial) for one in now.last if isinstance(one, Row)}
        for gone in self._reasons.keys() - shown:
            del self._reasons[gone]
        return draw(now, self._console.width, self._reason)

    def _reason(self, row: Row) -> str:
        """Grades are read only for what is shown, and once."""
        which = (row.key, row.trial)
        if which not in self._reasons:
            self._reasons[which] = shortened(reason_of(row, self._out))
        return self._reasons[which]

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(line, style=style or None, soft_wrap=True)


@contextmanager
def open_progress(*, silent: bool = False) -> Generator[Watcher]:
    """Whoever shows a run fits where stderr goes; the board is gone when this is left.

    `silent`: without a terminal nothing is said that nobody has to know.
    """
    if not sys.stderr.isatty():
        yield Silent() if silent else Lines()
        return
    from rich.console import Console  # noqa: PLC0415 (rich is loaded only where something is drawn)
    from rich.live import Live  # noqa: PLC0415 (the same)

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    if console.is_dumb_terminal:
        yield Silent() if silent else Lines()
        return
    board = Board(console)
    with Live(
        console=console,
        get_renderable=board.drawn,
        refresh_per_second=HERTZ,
        transient=True,
        redirect_stdout=False,
    ):
        yield board


def plan_words(plan: Planned) -> str:
    kept = f", {plan.kept} of them from before" if plan.kept else ""
    trials = f"{plan.total} trial{'s' * (plan.total != 1)}{kept}"
    return f"{trials}, for {', '.join(plan.targets) or 'nobody'}; all is kept in {plan.out}"


def ended_line(row: Row) -> str:
    """How a trial ended, in one line."""
    spent = (
        "" if row.duration_ms is None else took(row.duration_ms),
        "" if row.cost_usd is None or row.held_back_by else money(row.cost_usd),
        f"attempt {row.attempt + 1}" if row.attempt else "",
    )
    told = ", ".join(part for part in spent if part)
    why = "" if row.passed else f": {shortened(in_short(row))}"
    return clean(
        f"{sign(row)} {case_words(row)}{f' ({told})' if told else ''}{why}".replace("\n", " ")
    )


def _attempt(chosen: LogChosen) -> str:
    return f"attempt {chosen.attempt + 1}" if chosen.attempt else ""
