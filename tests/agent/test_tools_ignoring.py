"""What is passed over: our own reading of ignore files against ripgrep's and git's."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tool_bench import RIPGREP, a_bench, with_ripgrep, without_ripgrep

from goent.agent.tools.path_patterns import PathGlob, folder_ignores

NAMES = ("a", "b.py", "c c", "x", "#d", "!e", "a.b", "[x]", "e ")
FOLDERS = ("", "a/", "x/a/", "x/y/a/")
FILES = [
    folder + name
    for folder in FOLDERS
    for name in NAMES
    if not any(other.startswith(f"{folder}{name}/") for other in FOLDERS)
]

PART = st.sampled_from(
    ["a", "b.py", "*.py", "*", "?", "**", "x", "y", "[ab]", "[!a]*", "c c", r"\#d", "#d", r"\!e"]
)


def line(before: str, parts: list[str], after: str) -> str:
    return f"{before}{'/'.join(parts)}{after}"


LINE = st.builds(
    line,
    st.sampled_from(["", "", "", "!", "/", "!/"]),
    st.lists(PART, min_size=1, max_size=3),
    st.sampled_from(["", "", "", "/", "/**", " ", r"\ ", "\r"]),
)


def tree(folder: Path, files: Sequence[str]) -> None:
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def ours(folder: Path) -> set[str]:
    """By the rules alone, walked as the search does."""

    def walk(place: Path) -> set[str]:
        found: set[str] = set()
        ignoring = folder_ignores(str(place))
        for entry in os.scandir(place):
            if entry.name.startswith(".") or ignoring.is_ignored(entry.name, folder=entry.is_dir()):
                continue
            path = Path(entry.path)
            found |= walk(path) if path.is_dir() else {str(path.relative_to(folder))}
        return found

    return walk(folder)


def ripgreps(folder: Path) -> set[str]:
    searched = any((place / ".git").exists() for place in (folder, *folder.parents))
    done = subprocess.run(
        [
            *(RIPGREP, "--no-config", "--files", "--null"),
            *(() if searched else ("--no-require-git",)),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    return set(done.stdout.split("\0")) - {""}


def gits(folder: Path) -> set[str]:
    done = subprocess.run(
        ["git", "ls-files", "--others", "--exclude-standard", "-z"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "XDG_CONFIG_HOME": "/nowhere"},
    )
    return {name for name in done.stdout.split("\0") if name and not name.startswith(".")}


@settings(max_examples=60)
@given(st.lists(LINE, max_size=4), st.lists(LINE, max_size=2))
@example(["/*", "!/x"], ["*"])
@example(["a/**", "!a/b.py"], [])
@example(["**/a"], ["!a"])
@example(["x/**/b.py"], [])
@example(["*.py", "!x/a/b.py"], [])
def test_ignore_files_are_read_as_git_reads_them(above: list[str], below: list[str]):
    with TemporaryDirectory() as place:
        folder = Path(place).resolve()
        tree(folder, FILES)
        (folder / ".gitignore").write_bytes("\n".join(above).encode())
        (folder / "x" / ".gitignore").write_bytes("\n".join(below).encode())
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        assert {name for name in ours(folder) if ".gitignore" not in name} == {
            name for name in gits(folder) if ".gitignore" not in name
        }


@pytest.mark.parametrize(
    "files",
    [
        {".gitignore": "*.py\n"},
        {".ignore": "*.py\n"},
        {".gitignore": "*.py\n", "x/.gitignore": "!b.py\n"},
        {".gitignore": "*.py\n", "x/y/.git/HEAD": "", ".git/HEAD": ""},
        {".gitignore": "*.py\n", "x/.gitignore": "a/\n", "x/y/.gitignore": "*\n!a/\n!a/x\n"},
        {".git/info/exclude": "b.py\n", ".git/HEAD": ""},
        {".gitignore": "a/\n!a/\n"},
        {".gitignore": "\N{LATIN SMALL LETTER A WITH DIAERESIS}\n"},
    ],
)
def test_ignore_files_are_read_as_ripgrep_reads_them(tmp_path: Path, files: dict[str, str]):
    tree(tmp_path, FILES)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert ours(tmp_path) == ripgreps(tmp_path)


def test_what_is_said_above_the_folder_counts_up_to_the_top_of_the_repository(tmp_path: Path):
    tree(tmp_path, FILES)
    (tmp_path / ".gitignore").write_text("*.py\n")
    (tmp_path / "x" / ".gitignore").write_text("/y/a/a.b\n")
    below = tmp_path / "x" / "y"
    assert ours(below) == ripgreps(below)
    assert "a/b.py" not in ours(below)
    (tmp_path / "x" / ".git").mkdir()
    assert ours(below) == ripgreps(below)
    assert "a/b.py" in ours(below)


def test_an_ignore_file_that_is_a_pipe_or_a_folder_holds_nobody(tmp_path: Path):
    tree(tmp_path, ["a", "x/b"])
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / "x" / ".gitignore").mkdir()
    assert ours(tmp_path) == {"a", "x/b"}


WORDS = st.sampled_from(["alpha", "beta", "  alpha beta", "", "gamma\r\n", "ä", "alphalpha", "("])
PATTERNS = st.sampled_from(["alpha", "^alpha$", "a$", "^$", "b.t", "[aä]", r"\w+ \w+", r"\(", "lp"])


@settings(max_examples=10)
@given(
    st.dictionaries(st.sampled_from(FILES), st.lists(WORDS), min_size=1, max_size=5),
    PATTERNS,
    st.integers(0, 2),
    st.sampled_from(["content", "files", "count"]),
)
@example({"b.py": ["gamma\r", ""]}, "a$", 0, "content")
@example({"b.py": ["alpha"], "c c": ["alpha"]}, "alpha", 1, "content")
def test_both_searches_give_the_same_answer(
    files: dict[str, list[str]], pattern: str, context: int, mode: str
):
    async def answers(folder: Path) -> list[str]:
        said: list[str] = []
        for environ in (with_ripgrep(), without_ripgrep()):
            async with a_bench(folder, environ=environ) as bench:
                said.append(
                    await bench.said("Grep", pattern=pattern, context=context, output_mode=mode)
                )
        return said

    with TemporaryDirectory() as place:
        for name, lines in files.items():
            (Path(place) / name).parent.mkdir(parents=True, exist_ok=True)
            (Path(place) / name).write_bytes("\n".join(lines).encode())
        first, second = anyio.run(answers, Path(place))
    assert first == second


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("*.py", "a.py", True),
        ("*.py", "x/y/a.py", True),
        ("/*.py", "x/a.py", False),
        ("x/*.py", "x/a.py", True),
        ("x/*.py", "x/y/a.py", False),
        ("**/a", "a", True),
        ("x/**/a", "x/a", True),
        ("x/**/a", "x/y/z/a", True),
        ("x/**", "x", False),
        ("x/**", "x/y/z", True),
        ("**/x/**/a", "b/x/c/d/a", True),
        ("**/x/**/a", "b/c/d/a", False),
        ("{a,b{c,d}}.py", "bd.py", True),
        ("{a,b}", "c", False),
        ("{x/a,y}/*.py", "x/a/b.py", True),
        ("{", "{", True),
        ("a{b", "a{b", True),
        ("[[]x[]]", "[x]", True),
    ],
)
def test_patterns_of_paths(pattern: str, path: str, matches: bool):
    assert PathGlob(pattern).matches(path) is matches
