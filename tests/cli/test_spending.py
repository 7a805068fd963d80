"""`go-ent costs`: sums that do not hide what is unknown, and bars that fit the screen."""

import json
import os

import msgspec
import pytest
from desk import Desk, OpenDesk, Person

from goent.cli.display import show_costs
from goent.domain.money import FinishedCall
from goent.domain.replies import BudgetLine, CostLine, Costs
from goent.domain.types import Usage
from goent.testing.driver import say

REMEDY = (
    "the cost of 3 calls is unknown: interrupted before usage was reported, or the model "
    "has no price (set one in .goent/providers.yaml)"
)
MILLION = Usage(input=1_000_000)


def line(key: str, known: float, unknown: int = 0) -> CostLine:
    return CostLine(
        key=key,
        calls=2,
        usage=MILLION,
        cost_usd=None if unknown else known,
        known_usd=known,
        unknown_calls=unknown,
    )


def report(*lines: CostLine, by: str = "provider") -> Costs:
    known, unknown = sum(r.known_usd for r in lines), sum(r.unknown_calls for r in lines)
    return Costs(
        by=by,
        rows=lines,
        total_usd=None if unknown else known,
        known_usd=known,
        unknown_calls=unknown,
    )


def spend(desk: Desk, backend: str, model: str, usage: Usage | None = MILLION) -> None:
    call = FinishedCall(
        id="c1",
        billable=True,
        worker="w-gone",
        session="s",
        backend=backend,
        model=model,
        status=200,
        usage=usage,
        seconds=1,
    )
    desk.portal.call(desk.project.calls.books.call_finished, call)


def test_bars_are_as_long_as_the_costs(capsys: pytest.CaptureFixture[str]):
    show_costs(report(line("cheap", 0.5), line("dear", 4.0), line("tiny", 0.000001)))
    assert capsys.readouterr().out.splitlines() == [
        "PROVIDER  CALLS  TOKENS  COST",
        f"dear          2    1.0M  $4.00    {'█' * 24}",
        f"cheap         2    1.0M  $0.5000  {'█' * 3}",
        "tiny          2    1.0M  $0.0000  ▏",
        "total         6    3.0M  $4.50",
    ]


def test_days_stay_in_their_order(capsys: pytest.CaptureFixture[str]):
    show_costs(report(line("2026-11-01", 1.0), line("2026-11-02", 2.0), by="day"))
    days = [row.split()[0] for row in capsys.readouterr().out.splitlines()]
    assert days == ["DAY", "2026-11-01", "2026-11-02", "total"]


def test_what_is_unknown_is_neither_drawn_nor_summed(capsys: pytest.CaptureFixture[str]):
    show_costs(report(line("known", 1.0), line("partly", 0.5, unknown=1), line("dark", 0.0, 2)))
    assert capsys.readouterr().out.splitlines() == [
        "PROVIDER  CALLS  TOKENS  COST",
        f"known         2    1.0M  $1.00                       {'█' * 24}",
        f"partly        2    1.0M  unknown (at least $0.5000)  {'█' * 12}?",
        "dark          2    1.0M  unknown                     ?",
        "total         6    3.0M  unknown (at least $1.50)",
        REMEDY,
    ]


def test_free_is_known(capsys: pytest.CaptureFixture[str]):
    show_costs(report(line("plan", 0.0)))
    shown = capsys.readouterr().out
    assert "$0.0000" in shown
    assert "unknown" not in shown


def test_a_report_adds_up_own_prices_listed_ones_and_unknown_ones(open_desk: OpenDesk):
    with open_desk(lambda _: [say("done")]) as desk:
        spend(desk, "moonshot", "glm-4")  # providers.yaml says 1 USD
        spend(desk, "moonshot", "kimi-k2.6")  # the list says 0.95 USD, at any time of day
        spend(desk, "moonshot", "kimi-k2.6")
        spend(desk, "deepseek", "deepseek-coder")  # nobody says
        spend(desk, "moonshot", "glm-4", usage=None)  # cut off
        told = json.loads(desk.go_ent("costs", "--by", "model", "--json").out)
        rows = {row["key"]: (row["cost_usd"], row["known_usd"]) for row in told["rows"]}
        assert rows == {
            "glm-4": (None, 1.0),
            "kimi-k2.6": (1.9, 1.9),
            "deepseek-coder": (None, 0.0),
        }
        assert (told["total_usd"], told["known_usd"], told["unknown_calls"]) == (None, 2.9, 2)
        shown = desk.go_ent("costs").out
        assert "moonshot/kimi-k2.6" in shown
        assert "unknown (at least $2.90)" in shown


@pytest.mark.parametrize("by", ["provider", "model", "worker", "day"])
def test_the_total_is_the_same_however_it_is_sorted(open_desk: OpenDesk, by: str):
    with open_desk(lambda _: [say("done")]) as desk:
        for _ in range(3):
            spend(desk, "moonshot", "kimi-k2.6", Usage(input=1))
        told = json.loads(desk.go_ent("costs", "--by", by, "--json").out)
        assert (told["by"], told["total_usd"]) == (by, 0.00000285)
        assert desk.go_ent("costs", "--by", by).out.splitlines()[0].startswith(by.upper())


def test_another_way_to_sort_is_refused(open_desk: OpenDesk):
    with open_desk(lambda _: [say("done")]) as desk:
        ended = desk.go_ent("costs", "--by", "mood")
        assert (ended.code, ended.out) == (2, "")
        assert "'mood'" in ended.err


def test_a_provider_that_no_file_prices_shows_the_listed_price(open_desk: OpenDesk):
    with open_desk(lambda _: [say("done")]) as desk:
        providers = json.loads(desk.go_ent("providers", "--json").out)["providers"]
        prices = {p["name"]: (p["price"], p["cost_estimate"]) for p in providers}
        assert prices["glm"] == (
            {"input": 1.0, "output": 2.0, "cache_read": 0.1, "cache_write": None},
            0.024,
        )
        assert prices["deepseek/deepseek-coder"] == (None, None)


@pytest.mark.parametrize(("columns", "cells"), [(100, 24), (45, 12), (36, 0)])
def test_bars_take_the_room_that_the_terminal_has(open_desk: OpenDesk, columns: int, cells: int):
    with open_desk(lambda _: [say("done")]) as desk:
        spend(desk, "moonshot", "glm-4")
        person = Person(
            "costs", cwd=desk.project.folder, env={**os.environ, "COLUMNS": str(columns)}
        )
        assert person.leaves() == 0
        assert max(text.count("█") for text in person.seen.splitlines()) == cells
        assert "total" in person.seen


@pytest.mark.spec("P35")
def test_budgets_are_told_with_what_is_left(capsys: pytest.CaptureFixture[str]):
    day = BudgetLine(
        scope="day",
        key="2026-03-01",
        limit_usd=20.0,
        spent_usd=18.5,
        held_usd=1.0,
        left_usd=0.5,
        hard=True,
        unknown_calls=0,
    )
    project = BudgetLine(
        scope="project",
        key="/a",
        limit_usd=10.0,
        spent_usd=12.0,
        held_usd=0.0,
        left_usd=-2.0,
        hard=False,
        unknown_calls=3,
    )
    show_costs(msgspec.structs.replace(report(), budgets=(day, project)))
    assert capsys.readouterr().out.splitlines() == [
        "nothing spent yet",
        "hard budget: $18.50 of $20.00 a day, $1.00 reserved for running work, $0.5000 left",
        "soft budget: $12.00 of $10.00 for the project, exceeded; 3 calls without a price",
    ]
