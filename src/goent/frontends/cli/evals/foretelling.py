"""`go-ent eval run --dry-run`: what would be run, for people and for programs."""

from typing import TYPE_CHECKING, Final

from goent.frontends.cli.screen import clean, complain
from goent.frontends.cli.show import print_json, show_rows, show_table

if TYPE_CHECKING:
    from goent.evals.running.foreseen import Foreseen, ForeseenCase

RUNS: Final = ".goent/evals"
SHOWN: Final = 50  # cases; programs are told all of them


def foretell(foreseen: "Foreseen", *, json: bool) -> None:
    if json:
        print_json(foreseen)
        return
    for warning in foreseen.warnings:
        complain(clean(warning))
    targets = (
        (
            target.name,
            target.kind,
            str(target.to_make),
            str(target.at_once),
            ", ".join(target.fallbacks) or "-",
        )
        for target in foreseen.targets
    )
    show_table(("TARGET", "KIND", "TRIALS", "AT ONCE", "FALLBACKS"), targets)
    print()
    show_table(
        ("SUITE", "CASE", "TARGETS", "TRIALS", "GRADERS", "JUDGES", "WORKSPACE"),
        map(_row, foreseen.cases[:SHOWN]),
    )
    if len(foreseen.cases) > SHOWN:
        print(f"and {len(foreseen.cases) - SHOWN} more; --json tells all of them")
    print()
    show_rows(_bounds(foreseen))
    print(f"{_trials(foreseen)}: nothing was started")


def _row(case: "ForeseenCase") -> tuple[str, ...]:
    return (
        case.suite,
        case.test_id
        + (f", {case.turns} turns" if case.turns > 1 else "")
        + (f", after {', '.join(case.after)}" if case.after else ""),
        ", ".join(case.targets),
        str(case.to_make),
        ", ".join(case.graders) or "-",
        ", ".join(case.judges) or "-",
        case.workspace or "-",
    )


def _bounds(foreseen: "Foreseen") -> list[tuple[str, str]]:
    judges = (f"{name} ({kind})" for name, kind in foreseen.judges.items())
    budgets = [f"${foreseen.budget_usd:g} for the run"] if foreseen.budget_usd is not None else []
    budgets += [f"${usd:g} for {suite}" for suite, usd in foreseen.budgets_usd.items()]
    free = ", ".join(foreseen.unconfined)
    return [
        ("judges", ", ".join(judges)),
        *([("not confined", f"{free}: `cli` commands run outside the sandbox")] if free else []),
        ("budget", ", ".join(budgets) or "none"),
        ("limit", f"{foreseen.timeout_s:g} s for an attempt"),
        ("kept in", foreseen.out or f"a new folder in {RUNS}"),
    ]


def _trials(foreseen: "Foreseen") -> str:
    made = foreseen.trials - foreseen.to_make
    told = f"{foreseen.to_make} trial{'s' * (foreseen.to_make != 1)}"
    told += f" of {len(foreseen.cases)} case{'s' * (len(foreseen.cases) != 1)}"
    return f"{told}, {made} {'is' if made == 1 else 'are'} there already" if made else told
