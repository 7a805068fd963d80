"""How is one trial said in a line, and what is left of a line that is too long?"""

from goent.evals.reports.words import times
from goent.evals.rows import Row
from goent.frontends.cli.screen import clean

LONGEST = 160


def sign(row: Row) -> str:
    return "✓" if row.passed else "✗" if row.scored else "-" if row.skipped else "!"


def case_words(row: Row, *, alike: int = 1) -> str:
    """Which case, of which target and answered by whom, and which trial if there are several, or how many alike."""
    case = f"{row.suite} / {row.test_id}" if row.suite else row.test_id
    by = f" by {row.answered_by}" if row.answered_by else ""
    trial = f" trial {row.trial}/{row.trials}" if row.trials > 1 else ""
    score = f" {row.score:.2f}" if row.scored else " skipped" if row.skipped else " error"
    return f"{case} · {row.target}{by}{times(alike) or trial}{score}"


def shortened(text: str, limit: int = LONGEST) -> str:
    """On one line, and not too long a one: what is at issue is named first, and what was wrong with it last."""
    line = " ".join(clean(text.replace("\n", " ")).split())
    if len(line) <= limit:
        return line
    tail = (limit - 1) // 2
    return f"{line[: limit - 1 - tail]}…{line[len(line) - tail :]}"
