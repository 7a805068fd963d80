"""Does a run's index keep every row, whatever cut it?"""

import json
from math import nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from goent.domain.errors import RequestError
from goent.evals.eval_results import (
    Row,
    RowFile,
    Score,
    latest_rows,
    read_rows,
    row_line,
    rows_by_case,
)
from goent.evals.traces import TokenUsage

FIXED = {
    "test_id", "target", "score", "execution_status", "scores", "token_usage", "cost_usd", "duration_ms",
}  # fmt: skip
FIRST = Row(
    test_id="größe",
    target="glm",
    score=0.5,
    execution_status="quality_failure",
    scores=(Score(name="right", type="equals", score=0.5, weight=2.0, verdict="fail"),),
    token_usage=TokenUsage(input=10, output=2),
    cost_usd=0.01,
    duration_ms=12.5,
)
SECOND = Row(test_id="b", target="glm", score=1.0, execution_status="ok")


def append_row(path: Path, row: Row) -> None:
    file = RowFile(path)
    try:
        file.append([row_line(row)])
    finally:
        file.close()


def test_a_row_has_the_promised_fields_and_null_for_what_is_unknown(tmp_path: Path):
    path = tmp_path / "index.jsonl"
    append_row(path, FIRST)
    append_row(path, SECOND)
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first.keys() >= FIXED
    assert first["scores"][0].keys() == {"name", "type", "score", "weight", "verdict"}
    assert second["cost_usd"] is second["token_usage"] is second["duration_ms"] is None
    assert read_rows(path).rows == (FIRST, SECOND)


def test_a_row_of_another_harness_is_read(tmp_path: Path):
    path = tmp_path / "index.jsonl"
    path.write_text(
        '{"timestamp":"2026-01-01T00:00:00Z","test_id":"a","target":"t","score":1,'
        '"execution_status":"ok","scores":[{"name":"n","type":"llm","score":1,"weight":1,'
        '"verdict":"pass","assertions":[]}],"output_path":"a/b"}\n'
    )
    (row,) = read_rows(path).rows
    assert (row.test_id, row.score, row.cost_usd, row.trial) == ("a", 1, None, 1)


@given(st.data())
def test_wherever_the_last_line_is_cut_the_others_stay_and_it_can_go_on(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    path = tmp_path_factory.mktemp("cut") / "index.jsonl"
    append_row(path, SECOND)
    kept = path.stat().st_size
    append_row(path, FIRST)
    whole = path.read_bytes()
    end = data.draw(st.integers(kept, len(whole)))
    path.write_bytes(whole[:end])
    survived = (SECOND, FIRST) if end >= len(whole) - 1 else (SECOND,)
    found = read_rows(path)
    assert (found.rows, found.damaged) == (survived, ())
    assert found.cut == (kept < end < len(whole) - 1)
    append_row(path, SECOND)
    found = read_rows(path)
    assert (found.rows, found.damaged, found.cut) == ((*survived, SECOND), (), False)


def test_a_damaged_line_hides_no_other_and_is_named(tmp_path: Path):
    path = tmp_path / "index.jsonl"
    append_row(path, FIRST)
    with path.open("ab") as file:
        file.write(b'\xff\xfe\n{"test_id": "x"}\n\n')
    append_row(path, SECOND)
    found = read_rows(path)
    assert (found.rows, found.damaged, found.cut) == ((FIRST, SECOND), (2, 3), False)


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(RequestError, match="nowhere"):
        read_rows(tmp_path / "nowhere.jsonl")


def test_what_is_no_number_is_not_written(tmp_path: Path):
    path = tmp_path / "index.jsonl"
    with pytest.raises(ValueError, match="none"):
        append_row(path, Row(test_id="a", target="t", score=nan, execution_status="ok"))
    assert path.read_bytes() == b""


def test_a_trial_that_was_run_again_counts_once():
    failed = Row(test_id="a", target="t", score=0, execution_status="execution_error", error="gone")
    again = Row(test_id="a", target="t", score=1, execution_status="ok")
    other = Row(test_id="a", target="t", score=1, execution_status="ok", trial=2, trials=2)
    assert latest_rows([failed, other, again]) == (again, other)
    assert rows_by_case([failed, other, again]) == {again.key: (again, other)}
