"""What was measured, and is it good enough?"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Verdict = Literal["met", "missed", "for the record"]


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measure beside its peer's. `ratio` is ours by theirs; a target bounds it."""

    measure: str
    unit: str
    ours: float
    peer: float | None = None
    peer_name: str = ""
    at_most: float | None = None
    at_least: float | None = None

    @property
    def ratio(self) -> float | None:
        return self.ours / self.peer if self.peer else None

    @property
    def verdict(self) -> Verdict:
        ratio = self.ratio
        if ratio is None or self.target == "":
            return "for the record"
        low, high = self.at_least or 0.0, self.at_most or float("inf")
        return "met" if low <= ratio <= high else "missed"

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        return "" if self.at_least is None else f"≥ {self.at_least:g}"


class Report(Struct, frozen=True, kw_only=True):
    """A row as `--json` tells it."""

    row: Row
    ratio: float | None
    verdict: Verdict


def report(row: Row) -> Report:
    return Report(row=row, ratio=row.ratio, verdict=row.verdict)


def markdown(rows: Sequence[Row]) -> str:
    """A table for a README or a pull request."""
    lines = [
        "| measure | ours | peer | ratio | target | verdict |",
        "|---|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        peer = "" if row.peer is None else f"{_figure(row.peer, row.unit)} ({row.peer_name})"
        ratio = "" if row.ratio is None else f"{row.ratio:.3g}"
        cells = (row.measure, _figure(row.ours, row.unit), peer, ratio, row.target, row.verdict)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _figure(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
