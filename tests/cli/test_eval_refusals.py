"""What `go-ent eval` refuses, in words that name what was asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest
from desk import Ended

from goent.cli.main import run_cli

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
    assert f"'{name}': {value} " in ended.err
    assert not (tmp_path / "out").exists()


def test_a_variable_that_is_empty_names_no_folder(go_ent: GoEnt, tmp_path: Path):
    before = sorted(tmp_path.iterdir())
    for command in ("run", "grade"):
        ended = go_ent(command, "s.eval.yaml", "--out", "")
        assert (ended.code, ended.out) == (2, "")
        assert "'--out' / '-o': '' is not a folder" in ended.err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("options", [(), ("--resume",), ("--dry-run",)])
def test_a_folder_with_other_files_is_not_written_to(
    go_ent: GoEnt, tmp_path: Path, options: tuple[str, ...]
):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "trace.json").write_text("mine")
    ended = go_ent("run", "s.eval.yaml", "--out", ".", *options)
    assert ended.code == 2
    assert "'.' holds other files, such as 'a': name another --out" in ended.err
    assert (tmp_path / "a" / "trace.json").read_text() == "mine"
    assert not (tmp_path / ".lock").exists()
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".gitkeep").touch()
    assert go_ent("run", "s.eval.yaml", "--out", "new").code == 0


def test_grades_are_not_written_among_other_files(go_ent: GoEnt):
    assert go_ent("run", "s.eval.yaml", "--out", "out").code == 0
    ended = go_ent("grade", "out", "--out", ".goent")
    assert ended.code == 2
    assert "holds other files, such as 'targets.yaml': name another --out" in ended.err
