"""What was measured, and is it good enough?"""

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct

Verdict = Literal["met", "missed", "for the record"]


class Row(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measure beside its peer's. `ratio` is ours by theirs.

    A target bounds the ratio, and the measure itself where it has no peer.
    """

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
        if self.at_least is None and self.at_most is None:
            return "for the record"
        value = self.ours if self.ratio is None else self.ratio
        low = float("-inf") if self.at_least is None else self.at_least
        high = float("inf") if self.at_most is None else self.at_most
        return "met" if low <= value <= high else "missed"

    @property
    def target(self) -> str:
        for sign, bound in (("≤", self.at_most), ("≥", self.at_least)):
            if bound is not None:
                return f"{sign} {f'{bound:,g}' if self.peer else _figure(bound, self.unit)}"
        return ""


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
