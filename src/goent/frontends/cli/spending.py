"""How does a cost report look to a person? A table with bars, as far as the screen has room."""

from collections.abc import Mapping, Sequence
from typing import Final

from goent.domain.budgets import Scope
from goent.domain.provider_replies import BudgetLine, CostLine, Costs
from goent.frontends.cli.screen import clean, make_console
from goent.frontends.cli.show import print_drawn
from goent.frontends.cli.words import calls, count, money

BAR: Final = 24  # cells of the longest bar, where there is room
LEAST_BAR: Final = 6
GAP: Final = 2
EIGHTHS: Final = " ▏▎▍▌▋▊▉"
SCOPES: Final[Mapping[Scope, str]] = {
    "task": "for the task",
    "group": "for the group",
    "day": "a day",
    "project": "for the project",
}
UNKNOWN: Final = "?"  # at the end of a bar that may be longer in truth


def show_costs(costs: Costs) -> None:
    """Days in their order, anything else by what it cost; what is not known is not drawn."""
    if not costs.rows:
        print("nothing was spent yet")
        _show_budgets(costs.budgets)
        return
    from rich.table import Table  # noqa: PLC0415 (rich is loaded only where something is drawn)
    from rich.text import Text  # noqa: PLC0415 (the same)

    console = make_console()
    lines = costs.rows if costs.by == "day" else sorted(costs.rows, key=_rank)
    cells = [_cells(line) for line in lines] + [_total(costs)]
    heads = (costs.by.upper(), "CALLS", "TOKENS", "COST")
    used = sum(max(map(len, column)) + GAP for column in zip(heads, *cells, strict=True))
    bars = _bars(lines, min(BAR, console.width - used - len(UNKNOWN)))

    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
    for head, justify in zip(heads, ("left", "right", "right", "left"), strict=True):
        table.add_column(head, justify=justify, overflow="fold")
    table.add_column("", no_wrap=True)
    for row, bar in zip(cells, [*bars, ""], strict=True):
        table.add_row(*map(Text, row), Text(bar, style="cyan"))
    print_drawn(console, table)
    if costs.unknown_calls:
        print(
            f"the cost of {calls(costs.unknown_calls)} is not known: cut off before the usage was "
            "told, or of a model without a price (set one in .goent/providers.yaml)"
        )
    _show_budgets(costs.budgets)


def _show_budgets(budgets: Sequence[BudgetLine]) -> None:
    for line in budgets:
        held = f", {money(line.held_usd)} held for work under way" if line.held_usd else ""
        kind = "hard" if line.hard else "soft"
        left = f"{money(line.left_usd)} left" if line.left_usd >= 0 else "passed"
        unknown = f"; {calls(line.unknown_calls)} without a price" if line.unknown_calls else ""
        of = f"{money(line.limit_usd)} {SCOPES[line.scope]}"
        print(f"{kind} budget: {money(line.spent_usd)} of {of}{held}, {left}{unknown}")


def _rank(line: CostLine) -> tuple[float, str]:
    return -line.known_usd, line.key


def _cells(line: CostLine) -> tuple[str, ...]:
    tokens = count(line.usage.total)
    return clean(line.key), str(line.calls), tokens, _amount(line.cost_usd, line.known_usd)


def _total(costs: Costs) -> tuple[str, ...]:
    made = sum(line.calls for line in costs.rows)
    tokens = sum(line.usage.total for line in costs.rows)
    return "total", str(made), count(tokens), _amount(costs.total_usd, costs.known_usd)


def _amount(usd: float | None, known: float) -> str:
    if usd is not None:
        return money(usd)
    return f"unknown (at least {money(known)})" if known else "unknown"


def _bars(lines: Sequence[CostLine], width: int) -> list[str]:
    most = max(line.known_usd for line in lines)
    if width < LEAST_BAR or not most:
        return [""] * len(lines)
    return [
        _bar(line.known_usd / most, width) + (UNKNOWN if line.unknown_calls else "")
        for line in lines
    ]


def _bar(share: float, width: int) -> str:
    whole, eighths = divmod(round(share * width * 8), 8)
    if not whole and not eighths and share:
        eighths = 1  # little is not nothing
    return "█" * whole + EIGHTHS[eighths].strip()
