"""Is one run better than another, in few words?"""

from pathlib import Path
from typing import Final

from goent.domain.errors import RequestError
from goent.domain.evaluations import EvalChange, EvalCompared
from goent.evals.reports.comparing import Comparison, compare
from goent.evals.rows import read_rows
from goent.evals.running.folder import INDEX, counting

CHANGES: Final = 8


def compared(before: Path, after: Path, *, targets: tuple[str, str] | None) -> EvalCompared:
    """Raises `RequestError`."""
    first, second = (counting(read_rows(folder / INDEX), folder).rows for folder in (before, after))
    found = compare(first, second, targets=targets)
    if found.delta is None:
        raise RequestError(
            f"{found.words} Name one target of each run by targets, or see with eval_status what failed"
        )
    return _told(found)


def _told(found: Comparison) -> EvalCompared:
    return EvalCompared(
        conclusion=found.conclusion,
        words=found.words,
        cases=len(found.pairs),
        delta=found.delta,
        interval=(found.interval.low, found.interval.high) if found.interval else None,
        p=found.p_score,
        wins=found.wins,
        losses=found.losses,
        ties=found.ties,
        gained=found.gained,
        lost=found.lost,
        p_pass=found.p_pass,
        left_out=found.unpaired.count,
        changed=tuple(
            EvalChange(
                test_id=pair.key.test_id,
                target=pair.key.target,
                before=round(pair.before, 4),
                after=round(pair.after, 4),
            )
            for pair in found.changed[:CHANGES]
        ),
    )
