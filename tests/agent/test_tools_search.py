"""Grep and Glob, by ripgrep and by our own search: the same answers."""

import os
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tool_bench import Bench, a_bench, with_ripgrep, without_ripgrep

from goent.agent.agent_ports import ToolMistake
from goent.agent.tools import search_tools
from goent.agent.tools.search_tools import FileSearch, FileSearcher, SearchHit

pytestmark = pytest.mark.anyio

TREE = {
    "src/a.py": "import os\n\ndef alpha():\n    return os.name\n",
    "src/deep/b.py": "# alpha\nimport os\n",
    "src/deep/c.ts": "const alpha = 1;\r\nconst beta = 2;\r\n",
    "src/empty.py": "",
    "docs/guide.md": "Alpha and beta.\nNo end",
    "build/out.py": "alpha\n",
    "build/kept.py": "alpha\n",
    "src/x.log": "alpha\n",
    ".hidden/d.py": "alpha\n",
    ".env": "alpha=1\n",
    ".gitignore": "*.log\nbuild/*\n!build/kept.py\n/only-here\n",
    "only-here/e.py": "alpha\n",
    "src/only-here/f.py": "alpha\n",
    "node_modules/.gitignore": "*\n",
    "node_modules/g.py": "alpha\n",
    "two\nlines.py": "alpha\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "binary").write_bytes(b"alpha\0beta")
    (tmp_path / os.fsdecode(b"gr\xfcn.py")).write_bytes(b"alpha \xfc\n")
    (tmp_path / "link.py").symlink_to("src/a.py")
    (tmp_path / "out").symlink_to("/etc")
    os.mkfifo(tmp_path / "pipe.py")
    return tmp_path


Searches = Callable[[Path], AbstractAsyncContextManager[Bench]]


@pytest.fixture(params=["ripgrep", "own"])
def searches(request: pytest.FixtureRequest) -> Searches:
    environ: Mapping[str, str] = with_ripgrep() if request.param == "ripgrep" else without_ripgrep()

    @asynccontextmanager
    async def opened(cwd: Path) -> AsyncGenerator[Bench]:
        async with a_bench(cwd, environ=environ) as bench:
            yield bench

    return opened


async def test_lines_come_with_their_numbers_by_file(project: Path, searches: Searches):
    async with searches(project) as bench:
        told = await bench.call("Grep", pattern="alpha")
    assert told.text == (
        "build/kept.py\n1:alpha\n\n"
        "gr\\xfcn.py\n1:alpha \N{REPLACEMENT CHARACTER}\n\n"
        "src/a.py\n3:def alpha():\n\n"
        "src/deep/b.py\n1:# alpha\n\n"
        "src/deep/c.ts\n1:const alpha = 1;\n\n"
        "src/only-here/f.py\n1:alpha\n\n"
        "two\\nlines.py\n1:alpha"
    )
    assert [Path(place.path).name for place in told.locations][2] == "a.py"
    assert told.locations[2].line == 3


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"pattern": "alpha", "glob": "*.ts"}, "src/deep/c.ts\n1:const alpha = 1;"),
        ({"pattern": "ALPHA", "glob": "*.ts"}, "(nothing found)"),
        (
            {"pattern": "ALPHA", "glob": "*.{ts,md}", "case_insensitive": True},
            "docs/guide.md\n1:Alpha and beta.\n\nsrc/deep/c.ts\n1:const alpha = 1;",
        ),
        ({"pattern": "alpha", "glob": "src/**/*.py", "output_mode": "count"},
         "src/a.py: 1\nsrc/deep/b.py: 1\nsrc/only-here/f.py: 1"),
        ({"pattern": "import|return", "output_mode": "count"}, "src/a.py: 2\nsrc/deep/b.py: 1"),
        ({"pattern": "import", "output_mode": "files"}, "src/a.py\nsrc/deep/b.py"),
        ({"pattern": "end$"}, "docs/guide.md\n2:No end"),
        ({"pattern": "2;$"}, "src/deep/c.ts\n2:const beta = 2;"),
        ({"pattern": "^$"}, "src/a.py\n2:"),
        ({"pattern": "def", "context": 1}, "src/a.py\n2-\n3:def alpha():\n4-    return os.name"),
        (
            {"pattern": "import|name", "path": "src/a.py", "context": 1},
            "src/a.py\n1:import os\n2-\n3-def alpha():\n4:    return os.name",
        ),
        ({"pattern": "alpha", "path": "build/out.py"}, "build/out.py\n1:alpha"),
        ({"pattern": "alpha", "path": ".hidden"}, ".hidden/d.py\n1:alpha"),
        ({"pattern": "alpha", "glob": ".env"}, ".env\n1:alpha=1"),
        ({"pattern": "alpha", "glob": "**/.hidden/**"}, ".hidden/d.py\n1:alpha"),
        ({"pattern": "alpha", "path": "src/deep", "output_mode": "files"},
         "src/deep/b.py\nsrc/deep/c.ts"),
        ({"pattern": r"\bal\w+\(\)"}, "src/a.py\n3:def alpha():"),
        ({"pattern": "(?<=def )alpha"}, "src/a.py\n3:def alpha():"),
        ({"pattern": "-alpha"}, "(nothing found)"),
        ({"pattern": "--files"}, "(nothing found)"),
        ({"pattern": "alpha", "glob": "*.log"}, "(nothing found)"),
    ],
)  # fmt: skip
async def test_what_is_found_does_not_depend_on_who_searches(
    project: Path, searches: Searches, arguments: Mapping[str, object], answer: str
):
    async with searches(project) as bench:
        assert await bench.said("Grep", **arguments) == answer


async def test_an_expression_that_is_none_is_a_mistake(project: Path, searches: Searches):
    async with searches(project) as bench:
        for pattern in ("(", "a{2,1}", "[z-a]"):
            with pytest.raises(ToolMistake, match="not a valid expression"):
                await bench.said("Grep", pattern=pattern)
        with pytest.raises(ToolMistake, match="line break"):
            await bench.said("Grep", pattern="a\nb")


async def test_much_is_cut_with_a_notice(project: Path, searches: Searches):
    (project / "many.txt").write_text("needle\n" * 100_000)
    (project / "wide.txt").write_text("needle" + "x" * 5_000_000 + "\n")
    async with searches(project) as bench:
        told = await bench.said("Grep", pattern="needle", glob="many.txt")
        assert told.count("needle") == 200
        assert told.endswith("(there is more: narrow the search, or raise head_limit)")
        few = await bench.said("Grep", pattern="needle", glob="many.txt", head_limit=3)
        assert few.count("needle") == 3
        wide = await bench.said("Grep", pattern="needle", path="wide.txt")
        assert wide.endswith("x [cut]")
        assert len(wide) < 600
        most = await bench.said("Grep", pattern="needle", path="many.txt", head_limit=2000)
        assert len(most) < 31_000


async def test_a_limit_does_not_cut_the_lines_after_a_match(project: Path, searches: Searches):
    (project / "lines").write_text("\n".join("ababbbab"))
    async with searches(project) as bench:
        asked = {"pattern": "a", "path": "lines", "context": 1}
        first = await bench.said("Grep", **asked, head_limit=2)
        assert first.startswith("lines\n1:a\n2-b\n3:a\n4-b\n(there is more")
        whole = await bench.said("Grep", **asked, head_limit=3)
        assert whole == "lines\n1:a\n2-b\n3:a\n4-b\n--\n6-b\n7:a\n8-b"


async def test_what_cannot_be_searched_is_a_mistake(project: Path, searches: Searches):
    async with searches(project) as bench:
        with pytest.raises(ToolMistake, match="a pipe"):
            await bench.said("Grep", pattern="x", path="pipe.py")
        with pytest.raises(ToolMistake, match="there is no"):
            await bench.said("Grep", pattern="x", path="nowhere")
        with pytest.raises(ToolMistake, match="is a file"):
            await bench.said("Glob", pattern="x", path="src/a.py")


async def test_an_expression_that_never_ends_is_ended(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(search_tools, "SEARCH_S", 1.0)
    (project / "trap").write_text("a" * 60 + "\n")
    async with a_bench(project, environ=without_ripgrep()) as bench:
        with anyio.fail_after(30):
            told = await bench.said("Grep", pattern="(a+)+$b", path="trap")
    assert told.startswith("(nothing found before the time was up")


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\necho 'rg: unrecognized flag --crlf' >&2; exit 2\n",
        "#!/no/such/interpreter\n",
        "no program at all",
    ],
)
async def test_a_ripgrep_that_cannot_do_it_is_not_asked_again(project: Path, script: str):
    (project / "rg").write_text(script)
    (project / "rg").chmod(0o755)
    path = f"{project}:{without_ripgrep()['PATH']}"
    async with a_bench(project, environ={"PATH": path}) as bench:
        for _ in range(2):
            assert await bench.said("Grep", pattern="def alpha") == "src/a.py\n3:def alpha():"


async def test_folders_that_cannot_be_read_are_no_mistake(project: Path):
    (project / "rg").write_text("#!/bin/sh\nexit 2\n")  # as ripgrep ends then, if told to be quiet
    (project / "rg").chmod(0o755)
    async with a_bench(project, environ={"PATH": f"{project}:{os.environ['PATH']}"}) as bench:
        assert await bench.said("Grep", pattern="alpha") == "(nothing found)"


async def test_a_ripgrep_in_a_relative_folder_is_not_run(project: Path):
    (project / "rg").write_text("#!/bin/sh\ntouch ran\n")
    (project / "rg").chmod(0o755)
    async with a_bench(project, environ={"PATH": f".::{without_ripgrep()['PATH']}"}) as bench:
        assert "alpha" in await bench.said("Grep", pattern="alpha")
    assert not (project / "ran").exists()


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """Deeper than Python can go, pytest that tidies up included."""
    there = tmp_path / "deep"
    there.mkdir()
    place = there
    for _ in range(1200):
        place /= "d"
        place.mkdir()
    (place / "needle.txt").write_text("needle\n")
    yield there
    subprocess.run(["rm", "-rf", there], check=True)


async def test_folders_below_folders_without_end(deep: Path, searches: Searches):
    async with searches(deep) as bench:
        assert "1:needle" in await bench.said("Grep", pattern="needle")
        assert (await bench.said("Glob", pattern="**/d/*.txt")).endswith("d/needle.txt")


async def test_folders_can_be_left_out(project: Path, searches: Searches):
    found: list[str] = []

    def take(one: SearchHit) -> bool:
        found.append(one.path)
        return True

    async with searches(project) as bench:
        searcher = FileSearcher(bench.desk)
        assert await searcher.search(project, FileSearch(mode="list", without=("src",)), take)
    assert "docs/guide.md" in found
    assert not [path for path in found if path.startswith("src/")]


# Glob


PYTHON = (
    "build/kept.py gr\\xfcn.py src/a.py src/deep/b.py src/empty.py src/only-here/f.py"
    " two\\nlines.py"
)


def aged(project: Path) -> None:
    for age, path in enumerate(sorted(project.rglob("*"))):
        os.utime(path, (1000 - age, 1000 - age), follow_symlinks=False)


@pytest.mark.parametrize(
    ("pattern", "answer"),
    [
        ("*.py", PYTHON),
        ("**/*.py", PYTHON),
        ("src/*.py", "src/a.py src/empty.py"),
        ("src/**/*.{py,ts}", "src/a.py src/deep/b.py src/deep/c.ts src/empty.py src/only-here/f.py"),
        ("src/**", "src/a.py src/deep/b.py src/deep/c.ts src/empty.py src/only-here/f.py"),
        ("**/deep/?.py", "src/deep/b.py"),
        ("[ab].py", "src/a.py src/deep/b.py"),
        ("[!a].py", "src/deep/b.py src/only-here/f.py"),
        (".env", ".env"),
        (".*/*", ".hidden/d.py"),
        ("{project}/src/a.*", "src/a.py"),
        ("{project}/src/a.py", "src/a.py"),
        ("./src/a.py", "src/a.py"),
        ("nothing*", "(no such files)"),
        ("*.log", "(no such files)"),
    ],
)  # fmt: skip
async def test_files_are_found_by_their_names(
    project: Path, searches: Searches, pattern: str, answer: str
):
    aged(project)
    async with searches(project) as bench:
        told = await bench.said("Glob", pattern=pattern.replace("{project}", str(project)))
    expected = answer if answer.startswith("(") else "\n".join(answer.split(" "))
    assert told == expected


async def test_the_newest_come_first_and_not_too_many(tmp_path: Path, searches: Searches):
    for number in range(250):
        (tmp_path / f"{number}.txt").touch()
        os.utime(tmp_path / f"{number}.txt", (number, number))
    async with searches(tmp_path) as bench:
        *files, notice = (await bench.said("Glob", pattern="*.txt")).split("\n")
    assert files == [f"{number}.txt" for number in range(249, 149, -1)]
    assert notice == "(the newest 100 of 250: use a narrower pattern for others)"


@pytest.mark.parametrize("pattern", ["../*", "a/../../*", "{a,b}" * 20, "a\0b", "a\nb"])
async def test_what_is_no_pattern_is_a_mistake(project: Path, searches: Searches, pattern: str):
    async with searches(project) as bench:
        with pytest.raises(ToolMistake):
            await bench.prepare("Glob", pattern=pattern)


async def test_a_pattern_cannot_keep_us_busy(tmp_path: Path, searches: Searches):
    (tmp_path / ("a" * 200)).touch()
    (tmp_path / Path(*"a" * 60)).mkdir(parents=True)
    (tmp_path / Path(*"a" * 60) / "f").touch()
    async with searches(tmp_path) as bench:
        with anyio.fail_after(30):
            for pattern in ("*a" * 100 + "b", "**/a/" * 50 + "b", "**/" * 200 + "*b", "*" * 500):
                await bench.said("Glob", pattern=pattern)


async def test_what_is_outside_is_asked_for(project: Path, searches: Searches):
    async with searches(project / "src") as bench:
        for arguments in ({"path": ".."}, {"pattern": f"{project}/docs/*"}):
            call = await bench.prepare("Glob", **{"pattern": "*", **arguments})
            assert call.intent.need
            assert call.intent.need.permission == "outside"
        inside = await bench.prepare("Glob", pattern="*")
        assert inside.intent.need is None
        assert not inside.intent.runs_alone
