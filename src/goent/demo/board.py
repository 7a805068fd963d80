"""What does the audience see while three workers work? A table on a terminal, lines elsewhere."""

import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from goent.core.views import WorkerView, status
from goent.domain.types import ENDED
from goent.frontends.cli.screen import clean, make_console
from goent.frontends.cli.show import STYLES
from goent.frontends.cli.words import bar, count, duration, money

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

STEP_WIDTH = 34


class Board:
    """Lines, and below them on a terminal how the workers stand."""

    def __init__(self, console: "Console", live: "Live | None") -> None:
        self._console = console
        self._live = live

    def line(self, text: str, style: str = "") -> None:
        from rich.text import Text  # noqa: PLC0415 (rich is loaded only where something is drawn)

        self._console.print(Text(clean(text), style=style), soft_wrap=self._live is None)

    def draw(self, views: Mapping[str, WorkerView], foot: str) -> None:
        if self._live:
            self._live.update(_table(views, foot), refresh=True)


@contextmanager
def open_board() -> Generator[Board]:
    from rich.live import Live  # noqa: PLC0415 (the same)

    console = make_console()
    if not console.is_terminal:
        yield Board(console, None)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield Board(console, live)


def _table(views: Mapping[str, WorkerView], foot: str) -> "RenderableType":
    from rich.console import Group  # noqa: PLC0415 (the same)
    from rich.table import Table  # noqa: PLC0415 (the same)
    from rich.text import Text  # noqa: PLC0415 (the same)

    heads = ("worker", "provider", "state", "step", "progress", "tokens", "cost", "time")
    table = Table(*heads, box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for view in views.values():
        now = status(view)
        until = view.updated_at if now.state in ENDED else time.time()
        table.add_row(
            view.id,
            now.provider,
            Text(now.state, style=STYLES[now.state]),
            Text(clean(now.step)[:STEP_WIDTH], no_wrap=True, overflow="ellipsis"),
            bar(now.progress.percent or 0),
            count(now.usage.total),
            money(now.cost_usd) if view.calls else "",
            duration(until - view.started_at),
        )
    return Group(Text(), table, Text(foot, style="bold yellow"))
