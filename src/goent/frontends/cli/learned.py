"""How does what outcomes have taught look to a person?"""

from goent.domain.learned import Learned, LearnedLine, Lookback
from goent.frontends.cli.screen import clean
from goent.frontends.cli.show import show_table
from goent.frontends.cli.words import duration, money


def show_learned(found: Learned) -> None:
    told = "1 outcome" if found.outcomes == 1 else f"{found.outcomes} outcomes"
    print(f"{told}; {_tasks(found.left_out)} tell nothing of a worker")
    if found.classes:
        print()
        heads = (
            "TASKS",
            "PROVIDER",
            "VERIFIED",
            "REFUTED",
            "CLAIMED",
            "FAILED",
            "IN EVALS",
            "CHANCE",
        )
        show_table((*heads, "COST", "TIME"), map(_row, found.classes))
        print()
        _show_lookback(found.lookback)
    for note in found.notes:
        print(clean(f"note: {note}"))


def _row(line: LearnedLine) -> tuple[str, ...]:
    chance = f"{line.chance:.0%} ({line.low:.0%} to {line.high:.0%})"
    return (
        f"{line.type}, {line.complexity}",
        line.provider,
        *map(str, (line.verified, line.refuted, line.claimed, line.failed, line.graded)),
        chance if line.enough else f"{chance}, too few",
        money(line.cost_usd),
        duration(line.seconds) if line.seconds is not None else "-",
    )


def _show_lookback(found: Lookback) -> None:
    if not found.tasks:
        print("none of these tasks was done by a provider that you have now")
        return
    print(f"of {_tasks(found.tasks)}, {found.agreed} would have gone where they went")
    for each in found.instead:
        where = f"{each.instead} instead of {each.chosen}"
        print(clean(f"  {_tasks(each.tasks)} of {each.type}, {each.complexity}: {where}"))
    if found.agreed < found.tasks and found.chosen_chance is not None:
        print(
            f"estimated: {found.learned_chance:.0%} good instead of {found.chosen_chance:.0%}, "
            f"{money(found.learned_usd)} instead of {money(found.chosen_usd)} "
            f"(the {found.priced} with known prices)"
        )


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
