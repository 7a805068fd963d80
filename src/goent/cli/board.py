"""The live board of `run`, `swarm`, `eval` and `demo`: lines, and below them a foot that is redrawn.

Only a terminal has the foot; anything else gets the lines alone, and no cursor is moved.
"""

import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Self

from goent.cli import drawing
from goent.cli.terminal import encodable, make_console, print_now, print_stderr, strip_controls
from goent.domain.types import Value
from goent.domain.verification import quote_worker_text

REFRESH_HZ: Final = 8
MAX_BAR: Final = 30
MIN_BAR: Final = 8


class Board:
    """Lines alone. Words gather until they make a line."""

    is_live = False

    def __init__(self, write: Callable[[str], None] = print_now) -> None:
        self._write = write
        self._unfinished_line = ""

    def line(self, text: str, style: str = "") -> None:
        self.end_line()
        self._print(strip_controls(text), style)

    def write_words(self, text: str) -> None:
        *lines, self._unfinished_line = (self._unfinished_line + strip_controls(text)).split("\n")
        for line in lines:
            self._print(quote_worker_text(line), "")

    def end_line(self) -> None:
        begun, self._unfinished_line = self._unfinished_line, ""
        if begun:
            self._print(quote_worker_text(begun), "")

    def show(self, foot: "drawing.RenderableType") -> None:
        """Redraw the foot, where there is one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_line()

    def _print(self, line: str, style: str) -> None:
        self._write(line)


class LiveBoard(Board):
    """A terminal. `draw` makes the foot a few times a second; without it, `show` is given the foot."""

    is_live = True

    def __init__(
        self,
        console: "drawing.Console",
        *,
        draw: "Callable[[int], drawing.RenderableType] | None" = None,
        keep: bool = False,
    ) -> None:
        super().__init__()
        self._console = console
        self._draw = draw
        self._foot: drawing.RenderableType = ""
        self.live = drawing.Live(
            console=console,
            get_renderable=self._render,
            auto_refresh=draw is not None,
            refresh_per_second=REFRESH_HZ,
            transient=not keep,
            redirect_stdout=draw is None,  # with `draw`, stdout is for the summary alone
        )

    def write_words(self, text: str) -> None:
        super().write_words(text)
        while len(self._unfinished_line) >= self._console.width:
            at = self._unfinished_line.rfind(" ", 0, self._console.width)
            at = at if at > 0 else self._console.width - 1
            self._print(self._unfinished_line[:at], "")
            self._unfinished_line = self._unfinished_line[at:].lstrip(" ")
        self.live.refresh()

    def show(self, foot: "drawing.RenderableType") -> None:
        self._foot = foot
        self.live.refresh()

    def _render(self) -> "drawing.RenderableType":
        foot = self._draw(self._console.width) if self._draw else self._foot
        if isinstance(foot, str):
            foot = drawing.Text(
                strip_controls(foot), style="dim", no_wrap=True, overflow="ellipsis"
            )
        begun = [drawing.Text(self._unfinished_line)] if self._unfinished_line else []
        return drawing.Group(*begun, foot)

    def _print(self, line: str, style: str) -> None:
        self._console.print(drawing.Text(line, style=style), soft_wrap=True)


@contextmanager
def open_board(*, silent: bool = False, keep: bool = False) -> Generator[Board]:
    """The board on stdout. `keep`: its last foot stays; `silent`: nothing is shown (for `--json`)."""
    if silent or not sys.stdout.isatty():
        with Board(_discard) if silent else Board() as board:
            yield board
        return
    board = LiveBoard(make_console(), keep=keep)
    with board.live, board:
        yield board


@contextmanager
def open_stderr_board(draw: "Callable[[int], drawing.RenderableType]") -> Generator[Board]:
    """The board on stderr, which is gone when this is left; `draw` makes its foot for a width."""
    if sys.stderr.isatty():
        console = drawing.Console(stderr=True, highlight=False, markup=False, emoji=False)
        if not console.is_dumb_terminal:
            board = LiveBoard(console, draw=draw)
            with board.live:
                yield board
            return
    yield Board(print_stderr)


def _discard(_line: str) -> None:
    pass


def styled_line(*parts: tuple[str, str]) -> "drawing.Text":
    """Words and their styles on one line of the foot, cut where the terminal ends."""
    spelt = ((encodable(words, sys.stderr), style) for words, style in parts)
    return drawing.Text.assemble(*spelt, no_wrap=True, overflow="ellipsis")


def bar_line(
    shares: Iterable[tuple[int, str, str]], total: int, words: str, width: int, style: str = ""
) -> "drawing.Text":
    """A bar of (count, sign, style) shares of the total, as long as there is room, and the words."""
    cells = min(MAX_BAR, width - len(words) - 2)
    if cells < MIN_BAR:
        return styled_line((words, style))
    parts: list[tuple[str, str]] = []
    counted = start = 0
    for count, sign, look in shares:
        counted += count
        end = min(cells, round(counted / max(1, total) * cells))
        parts.append((sign * (end - start), look))
        start = end
    return styled_line(*parts, ("░" * (cells - start), "dim"), (f"  {words}", style))


COLUMNS: Final = ("name", "state", "provider", "step", "tokens", "cost", "time")
RIGHT_ALIGNED: Final = frozenset({"tokens", "cost", "time"})
DROPPABLE_COLUMNS: Final = ("tokens", "provider", "cost", "time")  # where the room is short
MIN_STEP_WIDTH: Final = 10
MAX_WIDTHS: Final[Mapping[str, int]] = {"name": 26, "provider": 24, "step": 60}
WIDE_TERMINAL: Final = 100
NARROW_WIDTHS: Final[Mapping[str, int]] = {"name": 16, "provider": 14}
MIN_WIDTHS: Final[Mapping[str, int]] = {"state": 9, "tokens": 6, "cost": 7, "time": 5}  # steady
COLUMN_GAP: Final = 2


class BoardRow(Value, frozen=True, kw_only=True):
    """A worker or a task, as the board's table shows it."""

    name: str
    state: str
    provider: str
    step: str
    tokens: str
    cost: str
    time: str
    style: str
    step_style: str = ""

    def cell(self, column: str) -> str:
        found: str = getattr(self, column)
        return " ".join(strip_controls(found).split())


def board_table(rows: Sequence[BoardRow], width: int, heading: str) -> "drawing.Table":
    """A row for each, under a heading for their names; a narrow terminal loses columns, not states."""
    table = drawing.Table(
        box=None, pad_edge=False, header_style="dim", padding=(0, COLUMN_GAP, 0, 0)
    )
    columns = _column_widths(rows, width, heading)
    for column, cells in columns.items():
        table.add_column(
            heading if column == "name" else column,
            no_wrap=True,
            width=cells,
            justify="right" if column in RIGHT_ALIGNED else "left",
            overflow="ellipsis",
        )
    for row in rows:
        styles = {"name": row.style, "state": row.style, "step": row.step_style}
        table.add_row(*(drawing.Text(row.cell(c), style=styles.get(c, "")) for c in columns))
    return table


def _column_widths(rows: Sequence[BoardRow], width: int, heading: str) -> Mapping[str, int]:
    """Which columns are shown, and how wide; the step takes what the others leave."""
    limits = MAX_WIDTHS if width >= WIDE_TERMINAL else {**MAX_WIDTHS, **NARROW_WIDTHS}
    widths: dict[str, int] = {}
    for column in COLUMNS:
        least = max(len(heading if column == "name" else column), MIN_WIDTHS.get(column, 0))
        longest = max((len(row.cell(column)) for row in rows), default=0)
        widths[column] = min(limits.get(column, width), max(least, longest))
    droppable = list(DROPPABLE_COLUMNS)
    while (left := _step_width(widths, width)) < MIN_STEP_WIDTH and droppable:
        widths.pop(droppable.pop(0))
    widths["step"] = min(limits["step"], left)
    return {column: cells for column, cells in widths.items() if cells > 0}


def _step_width(widths: Mapping[str, int], width: int) -> int:
    return width - sum(cells + COLUMN_GAP for head, cells in widths.items() if head != "step")
