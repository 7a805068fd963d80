"""What does the audience see while three workers work? A table on a terminal, lines elsewhere."""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from goent.core.views import WorkerView, evidence, status
from goent.domain.types import ENDED
from goent.frontends.cli.badge import badge
from goent.frontends.cli.screen import clean, make_console
from goent.frontends.cli.words import bar, count, duration, gauge, money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

STEP_WIDTH = 34
ROOMY = 110


class Board:
    """Lines, and below them on a terminal how the workers stand."""

    def __init__(self, console: "Console", live: "Live | None") -> None:
        self._console = console
        self._live = live

    def line(self, text: str, style: str = "") -> None:
        from rich.text import Text  # noqa: PLC0415 (rich is loaded only where something is drawn)

        words = Text(clean(text), style=style)
        if self._live:
            self._console.print(words, no_wrap=True, overflow="ellipsis")
        else:
            self._console.print(words, soft_wrap=True)

    def draw(self, views: Mapping[str, WorkerView], foot: str) -> None:
        if self._live:
            narrow = self._console.width < ROOMY
            self._live.update(_table(views, foot, narrow=narrow), refresh=True)


class Dark(Board):
    """Shows nothing: for `--json`, where only the end counts."""

    def line(self, text: str, style: str = "") -> None:
        pass

    def draw(self, views: Mapping[str, WorkerView], foot: str) -> None:
        pass


@contextmanager
def open_board(*, silent: bool = False) -> Generator[Board]:
    from rich.live import Live  # noqa: PLC0415 (the same)

    console = make_console()
    if silent:
        yield Dark(console, None)
        return
    if not console.is_terminal:
        yield Board(console, None)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield Board(console, live)


def _table(views: Mapping[str, WorkerView], foot: str, *, narrow: bool) -> "RenderableType":
    from rich.console import Group  # noqa: PLC0415 (the same)
    from rich.table import Table  # noqa: PLC0415 (the same)
    from rich.text import Text  # noqa: PLC0415 (the same)

    heads = ("worker", "provider", "state", "step", "progress", "tokens", "cost", "time")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    rows = [_cells(view, narrow=narrow) for view in views.values()]
    for column, head in list(enumerate(heads))[narrow:]:
        # Where the room is short, it is the step that gives way.
        needed = 0 if head == "step" else max(len(row[column]) for row in rows)
        table.add_column(head, no_wrap=True, min_width=needed, max_width=STEP_WIDTH)
    for view, row in zip(views.values(), rows, strict=True):
        cells = [Text(clean(cell), overflow="ellipsis") for cell in row]
        cells[2].stylize(badge(view.state, evidence(view)).style)
        table.add_row(*cells[narrow:])
    return Group(Text(), table, Text(foot, style="bold yellow"))


def _cells(view: WorkerView, *, narrow: bool) -> Sequence[str]:
    now = status(view)
    percent = now.progress.percent or 0
    until = view.updated_at if now.state in ENDED else time.time()
    return (
        view.id,
        now.model if narrow else now.provider,
        badge(now.state, now.evidence).words,
        now.step,
        gauge(percent) if narrow else bar(percent),
        count(now.usage.total),
        money(now.cost_usd) if view.calls else "",
        duration(until - view.started_at),
    )
