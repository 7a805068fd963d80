"""How much of a run is there, and was it made in one go? What the numbers alone would not tell."""

from goent.domain.types import Value
from goent.evals.reports.words import numbered


class Extent(Value, frozen=True, kw_only=True):
    """In trials: `planned` (None: nobody knows), and `made` of them; `spared` were not, for their case has cost enough.

    `remade` had failed, and were made again: whatever passes at the second try makes rates look better.
    `stopped` says why trials were left out.
    """

    made: int
    planned: int | None = None
    spared: int = 0
    remade: int = 0
    stopped: str = ""

    @property
    def unrun(self) -> int:
        """Those that are still to be made."""
        return 0 if self.planned is None else max(0, self.planned - self.made - self.spared)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the numbers has to know, a sentence each."""
        told = (self.left_out, self._spared(), self._remade())
        return tuple(note for note in told if note)

    @property
    def left_out(self) -> str:
        """That trials are missing, and why."""
        why = f"stopped: {self.stopped}" if self.stopped else ""
        if not self.unrun:
            return why
        of = numbered(self.planned or 0, "trial")
        left = f"{self.unrun:,} of {of} {_were(self.unrun)} not made"
        return f"{why}; {left}" if why else left

    def _spared(self) -> str:
        if not self.spared:
            return ""
        return (
            f"{numbered(self.spared, 'trial')} {_were(self.spared)} left out: "
            f"{'its case has' if self.spared == 1 else 'their cases have'} cost as much as cost_limit_usd allows"
        )

    def _remade(self) -> str:
        if not self.remade:
            return ""
        return (
            f"{numbered(self.remade, 'trial')} {_were(self.remade)} made again after a failure: "
            "rates may be better than those of a first try"
        )


def _were(count: int) -> str:
    return "was" if count == 1 else "were"
