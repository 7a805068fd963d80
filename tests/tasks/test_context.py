"""How much a task asks to be read: counted on disk, and never for long."""

import os
import time
from pathlib import Path

import pytest

from goent.billing.token_estimate import estimate_tokens
from goent.domain.task_profile import TaskContext, TaskText
from goent.routing.classification import (
    FILE_SAMPLE,
    MOST_COUNTED,
    count_context,
    count_named,
    named_paths,
)

CODE = "def answer(question):\n    return 42\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("src/a.py", "src/b.py", "src/deep/c.py", "src/deep/d.ts", "README.md"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CODE)
    (tmp_path / "node_modules/x").mkdir(parents=True)
    (tmp_path / "node_modules/x/index.py").write_text(CODE)
    return tmp_path


def counted(text: str, cwd: Path, *files: str) -> TaskContext:
    return count_context(TaskText(text=text, files=files), cwd, limit_s=20)


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("fix src/a.py", 1),
        ("fix `src/a.py`, src/b.py and README.md.", 3),
        ("see @src/a.py", 1),
        ("look at src/", 4),
        ("look at ./src/deep", 2),
        ("convert src/*.py", 2),
        ("convert src/**/*.py", 3),
        ("convert **/*.{py,ts}", 4),
        ("convert src/**", 4),
        ("convert src/[ab].py", 2),
        ("look at src/*/../", 4),
        ("the same twice: src/a.py ./src/a.py", 1),
        ("nothing here, e.g. and/or 1.5 and src/missing.py", 0),
    ],
)
def test_what_is_named_is_counted_once(tree: Path, text: str, files: int):
    found = counted(text, tree)
    assert (found.files, found.complete) == (files, True)
    assert found.tokens == files * estimate_tokens(CODE)


def test_files_that_the_caller_lists_count_too(tree: Path):
    assert counted("tidy up", tree, "src/a.py", "src/deep").files == 3


def test_an_absolute_path_is_a_path(tree: Path):
    assert counted(f"fix {tree}/src/a.py", Path("/")).files == 1


def test_a_large_file_is_judged_by_its_beginning(tmp_path: Path):
    text = CODE * 50_000
    (tmp_path / "big.py").write_text(text)
    tokens = counted("shorten big.py", tmp_path).tokens
    assert len(text) > 100 * FILE_SAMPLE
    assert tokens == pytest.approx(estimate_tokens(text), rel=0.05)


def test_what_is_no_text_has_no_tokens(tmp_path: Path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0" * 1000)
    assert counted("shrink picture.png", tmp_path) == TaskContext(files=1)


def test_what_cannot_be_read_to_its_end_is_not_begun(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "loop").symlink_to(tmp_path)
    begun = time.monotonic()
    assert counted("read pipe.txt and /dev/zero and loop/", tmp_path).files == 0
    assert time.monotonic() - begun < 5


def test_a_limit_of_time_ends_the_count(tree: Path):
    found = count_context(TaskText(text="look at src/"), tree, limit_s=0)
    assert found == TaskContext(complete=False)


def test_a_limit_of_files_ends_the_count(tmp_path: Path):
    for number in range(MOST_COUNTED + 1):
        (tmp_path / f"{number}.txt").touch()
    found = counted("look at ./", tmp_path)
    assert (found.files, found.complete) == (MOST_COUNTED, False)


@pytest.mark.parametrize("piece", ["a/", "*", "a.b ", "{a,", "[a", "../", "**/", "@", "~/"])
def test_any_prompt_is_read_in_bounded_time(tree: Path, piece: str):
    begun = time.process_time()
    count_context(TaskText(text=piece * 1_000_000), tree)
    assert time.process_time() - begun < 2


def test_names_are_told_apart_from_words():
    task = TaskText(
        text="Use and/or in a.b.c of v1.2, https://example.invalid/x/y.html, or src/x.py!"
    )
    assert "src/x.py" in named_paths(task)
    assert not [name for name in named_paths(task) if "example" in name]


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("make a.py, src/b.ts and docs/c.md", 3),
        ("sort src/*.py", 1),
        ("upgrade to 4.17.21, and/or 2.0", 0),
        ("use Node.js as on example.com, e.g. with async/await", 0),
        ("What is 2+2?", 0),
    ],
)
def test_files_that_a_task_names_are_counted_whether_they_are_there_or_not(text: str, files: int):
    assert count_named(TaskText(text=text)) == files


def test_a_file_that_the_caller_lists_counts_whatever_its_name():
    assert count_named(TaskText(text="fix it", files=("LICENSE", "a.py"))) == 2
