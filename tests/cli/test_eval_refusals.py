"""What `go-ent eval` refuses, in words that name what was asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest
from desk import Ended

from goent.frontends.cli.main import run_cli

SUITE = "tests: [{id: a, input: x, assertions: [{type: contains, value: x}]}]\n"
TARGETS = "targets: [{name: t, provider: mock, response: x}]\n"
GoEnt = Callable[..., Ended]


@pytest.fixture
def go_ent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> GoEnt:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".goent").mkdir()
    (tmp_path / ".goent" / "targets.yaml").write_text(TARGETS)
    (tmp_path / "s.eval.yaml").write_text(SUITE)

    def told(*arguments: str) -> Ended:
        code = run_cli(["eval", *arguments])
        said = capsys.readouterr()
        return Ended(code, said.out, said.err)

    return told


@pytest.mark.parametrize("value", ["nan", "inf"])
@pytest.mark.parametrize(
    "option", ["run --timeout", "run --threshold", "run --budget-usd", "grade --threshold"]
)
def test_what_is_no_number_is_refused_by_its_name(
    go_ent: GoEnt, tmp_path: Path, option: str, value: str
):
    command, name = option.split()
    ended = go_ent(command, "s.eval.yaml", "--out", "out", name, value)
    assert (ended.code, ended.out) == (2, "")
    assert f"'{name}': {value} is " in ended.err
    assert not (tmp_path / "out").exists()
