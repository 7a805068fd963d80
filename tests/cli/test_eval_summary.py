"""What somebody reads when an evaluation is over."""

import json
from pathlib import Path

import msgspec
import pytest

from goent.cli.eval_display import fit_columns, print_summary_json, shorten_line, show_run_summary
from goent.cli.eval_progress import EvalProgress
from goent.evals.eval_results import Row, Rows
from goent.evals.reports.report_formats import summary_markdown
from goent.evals.reports.run_summary import summarize_targets
from goent.evals.runner.run_folder import current_rows

LOST = Row(
    test_id="c", suite="s", target="coder", score=0, execution_status="execution_error",
    error="timeout: gone", trials=3,
)  # fmt: skip
GOOD = Row(test_id="c", suite="s", target="coder", score=1, execution_status="ok", trials=3)


def read(*rows: Row) -> Rows:
    return Rows(rows=rows)


def noted(out: Path, **said: object) -> Path:
    """A run's folder that says of itself what is told here."""
    manifest: dict[str, object] = {
        "suites": ["s.eval.yaml"],
        "wanted": {},
        "began": "2026-11-16T10:00:00Z",
        **said,
    }
    (out / "run.json").write_text(json.dumps(manifest))
    return out


def trials(row: Row, *numbers: int) -> list[Row]:
    return [msgspec.structs.replace(row, trial=number) for number in numbers]


def test_columns_are_left_out_where_there_is_no_room_and_no_cell_is_cut():
    rows = [
        msgspec.structs.replace(row, test_id=f"c{number}", cost_usd=0.5 if number else None)
        for number in range(5)
        for row in trials(GOOD, 1, 2, 3)
    ]
    wide = fit_columns(summarize_targets(rows), 200)
    assert list(wide)[-2:] == ["PASS^K", "FLIPS"]
    assert wide["TRIALS PASSED"] == ["15/15"] and wide["RATE BY CASE"] == ["100% (57% to 100%)"]
    narrow = fit_columns(summarize_targets(rows), 80)
    assert narrow["RATE BY CASE"] == ["100%\n(57% to 100%)"]
    assert "COST" in narrow and "FLIPS" not in narrow
    least = fit_columns(summarize_targets(rows), 10)
    assert list(least) == ["TARGET", "TRIALS PASSED", "RATE BY CASE", "ERRORS"]


def test_a_long_name_is_cut_in_the_middle_before_a_column_is_left_out():
    names = [f"opencode-deepseek-v4-pro-without-web-{number}" for number in (1, 2)]
    rows = [msgspec.structs.replace(GOOD, target=name, trials=1) for name in names]
    narrow = fit_columns(summarize_targets(rows), 76)
    assert "MEDIAN" in narrow
    first, second = narrow["TARGET"]
    assert first.startswith("opencod") and first.endswith("-1") and first != second
    assert 12 <= len(first) <= 20
    assert list(fit_columns(summarize_targets(rows), 50))[-1] == "ERRORS"


def test_what_could_not_be_judged_is_in_no_rate_and_in_no_count():
    rows = [GOOD, msgspec.structs.replace(LOST, test_id="d", trials=1)]
    bad = msgspec.structs.replace(GOOD, test_id="e", score=0, execution_status="quality_failure")
    columns = fit_columns(summarize_targets([*rows, bad]), 200)
    assert (columns["PASSED"], columns["RATE"][0][:3], columns["ERRORS"]) == (["1/2"], "50%", ["1"])


def test_a_run_that_was_cut_off_says_how_much_of_it_there_is(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    out = noted(tmp_path, planned=30)
    show_run_summary(read(*trials(GOOD, 1, 2)), out)
    assert "! not finished: 2 of 30 trials: 2 passed (1 case, 1 target)" in capsys.readouterr().out
    print_summary_json(read(*trials(GOOD, 1, 2)), out)
    told = json.loads(capsys.readouterr().out)
    assert (told["planned"], told["unrun"], told["result"]) == (30, 28, "unfinished")


def test_dice_that_were_thrown_again_are_told(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    failed = msgspec.structs.replace(GOOD, score=0, execution_status="quality_failure")
    index = read(*trials(failed, 1, 2), *trials(LOST, 3), *trials(GOOD, 1, 3))
    counted = current_rows(index, noted(tmp_path, planned=3, ended="2026-11-16T10:01:00Z"))
    show_run_summary(counted, tmp_path)
    assert (
        "! 1 trial was made again after a failure: rates may be better" in capsys.readouterr().out
    )
    print_summary_json(counted, tmp_path)
    assert json.loads(capsys.readouterr().out)["remade"] == 1


def test_of_a_long_reason_both_ends_are_told():
    told = shorten_line(f"judge 'x' could not be asked: {'a' * 400} no such model")
    assert len(told) == 160
    assert told.startswith("judge 'x' could not be asked: ") and told.endswith("no such model")


def test_what_was_skipped_counts_for_no_rate():
    skipped = msgspec.structs.replace(GOOD, test_id="d", score=0, execution_status="skipped")
    columns = fit_columns(summarize_targets([GOOD, skipped]), 200)
    assert (columns["PASSED"], columns["RATE"][0][:4]) == (["1/1"], "100%")


def test_what_failed_alike_is_told_once(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    rows = trials(LOST, 1, 2, 3)
    show_run_summary(read(*rows), tmp_path)
    said = capsys.readouterr().out
    assert (
        "! s / c · coder \N{MULTIPLICATION SIGN}3 error" in said
        and said.count("timeout: gone") == 1
    )
    assert "<code>timeout&#58; gone</code> \N{MULTIPLICATION SIGN}3 |" in summary_markdown(
        summarize_targets(rows)
    )


def test_trials_that_were_not_made_are_told_with_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    why = "the budget of $1.00 is spent"
    out = noted(tmp_path, planned=3, stopped=why)
    show_run_summary(read(*trials(GOOD, 1)), out, exit_code=3)
    said = capsys.readouterr().out
    assert "! stopped: the budget of $1.00 is spent; 2 of 3 trials were not made\n" in said
    assert "! some trials did not run: 1 of 1 case" in said
    print_summary_json(read(*trials(GOOD, 1)), out, exit_code=3)
    told = json.loads(capsys.readouterr().out)
    assert (told["unrun"], told["stopped"], told["result"]) == (2, why, "errors")


@pytest.mark.parametrize(
    ("exit_code", "title"), [(0, "✓ passed"), (1, "✗ failed"), (130, "! not finished")]
)
def test_the_verdict_is_that_of_the_exit_code(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, exit_code: int, title: str
):
    show_run_summary(read(*trials(LOST, 1), *trials(GOOD, 2)), tmp_path, exit_code=exit_code)
    assert f"\n{title}: 1 of 2 trials passed" in capsys.readouterr().out


def test_whoever_answered_in_place_of_a_target_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    rows = trials(msgspec.structs.replace(GOOD, answered_by="spare"), 1, 2)
    show_run_summary(read(*rows), tmp_path)
    assert "2 trials were answered by spare in place of coder" in capsys.readouterr().out
    EvalProgress().ended(rows[0])
    assert "✓ s / c · coder by spare trial 1/3 1.00" in capsys.readouterr().err
    words = "2 trials were answered by <code>spare</code> in place of <code>coder</code>."
    assert words in summary_markdown(summarize_targets(rows))
