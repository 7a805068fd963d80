"""`go-ent classify`: one task explained, or many, line by line."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from goent.cli.main import run_cli

Line = dict[str, object]


@pytest.fixture
def classified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8"))
        code = run_cli(["classify", *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def objects(text: str) -> list[Line]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_question_is_said_to_change_nothing(classified: Callable[..., tuple[int, str, str]]):
    _, out, _ = classified("What is 2+2?")
    assert out.startswith("analyze (100% sure) · trivial\nnothing to change · ")
    _, out, _ = classified("rename x to y in app.py")
    assert " lines in 1 file · " in out


def test_a_person_is_told_what_it_is_and_why(classified: Callable[..., tuple[int, str, str]]):
    code, out, err = classified("fix typo in README")
    assert (code, err) == (0, "")
    assert out.startswith("documentation (")
    assert "trivial" in out
    assert "why documentation:" in out
    assert "why this size:" in out


def test_the_json_has_every_field(classified: Callable[..., tuple[int, str, str]], tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1\n" * 500)
    code, out, _ = classified("add tests for a.py", "--json")
    told = json.loads(out)
    assert code == 0
    assert told["type"] == "test"
    assert told["complexity"] in {"trivial", "simple", "medium", "complex", "high"}
    assert told["files"] == 1
    assert told["size"] > 0
    assert told["context_tokens"] > 1000
    assert {"name", "of", "weight"} == set(told["features"][0])


def test_a_task_comes_from_stdin_too(classified: Callable[..., tuple[int, str, str]]):
    code, out, _ = classified("-", "--json", stdin="explain the cache, naïvely".encode())
    assert (code, json.loads(out)["type"]) == (0, "analyze")


def test_every_line_comes_back_with_what_was_found(
    classified: Callable[..., tuple[int, str, str]], tmp_path: Path
):
    rows = [
        {"text": "add unit tests", "id": 2**70, "type": "label", "files": 3},
        {"text": "run prettier", "note": {"any": [None, "ü"]}},
    ]
    (tmp_path / "tasks.jsonl").write_text("\n\n".join(map(json.dumps, rows)))
    code, out, err = classified("--jsonl", "tasks.jsonl")
    first, second = objects(out)
    assert (code, err) == (0, "")
    assert (first["type"], first["id"], first["files"]) == ("test", 2**70, 3)
    assert (second["type"], second["note"]) == ("format", {"any": [None, "ü"]})
    for told in (first, second):
        assert isinstance(told["size"], float)
        assert told["complexity"] in {"trivial", "simple", "medium", "complex", "high"}


def test_a_label_in_the_line_is_not_looked_at(classified: Callable[..., tuple[int, str, str]]):
    lines = [{"text": "run prettier", "type": kind} for kind in ("fix", "review")]
    _, out, _ = classified("--jsonl", "-", stdin="\n".join(map(json.dumps, lines)).encode())
    assert [told["type"] for told in objects(out)] == ["format", "format"]


def test_a_bad_line_is_answered_by_its_number_and_the_rest_go_on(
    classified: Callable[..., tuple[int, str, str]],
):
    stdin = b'{"text": "run prettier"}\nnonsense\n[1]\n{"txt": "x"}\n{"text": 3}\n\xff\n{"text": "run black"}'
    code, out, err = classified("--jsonl", "-", stdin=stdin)
    told = objects(out)
    assert code == 1
    assert [line.get("line") for line in told] == [None, 2, 3, 4, 5, 6, None]
    assert all("an object such as" in str(line["error"]) for line in told[1:6])
    assert (told[0]["type"], told[-1]["type"]) == ("format", "format")
    assert "5 of 7 lines are not tasks" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "give a TASK"),
        (("a task", "--jsonl", "-"), "give a TASK"),
        (("  ",), "the task is empty"),
        (("--jsonl", "missing.jsonl"), "cannot read 'missing.jsonl'"),
        (("--jsonl", "."), "cannot read '.'"),
        (("--jsonl", "-", "--file", "a"), "--file works with one TASK"),
    ],
)
def test_a_mistake_is_named(
    classified: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...], says: str
):
    code, out, err = classified(*arguments)
    assert (code, out) == (2, "")
    assert says in err
