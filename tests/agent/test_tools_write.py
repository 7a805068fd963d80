"""Write: whole files, and never over something that the model does not know."""

import os
import stat
from pathlib import Path

import pytest
from tool_bench import Bench, a_bench

from goent.agent.agent_events import DiffPart
from goent.agent.agent_ports import PermissionNeed, ToolMistake
from goent.agent.tool_runner import SessionPermissions

pytestmark = pytest.mark.anyio


async def write(bench: Bench, name: str, content: str = "new\n") -> str:
    return await bench.said("Write", file_path=name, content=content)


async def test_a_new_file_is_made_with_its_folders(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        call = await bench.prepare("Write", file_path="src/deep/a.py", content="x = 1\n")
        path = str(tmp_path / "src/deep/a.py")
        assert call.intent.kind == "edit"
        assert call.intent.need == PermissionNeed(
            permission="edit", patterns=(path,), always=(f"{tmp_path}/*",)
        )
        assert call.intent.shown == (DiffPart(path=path, new="x = 1\n"),)
        done = await bench.run(call)
    assert done.text == "Created src/deep/a.py (1 line)"
    assert Path(path).read_text() == "x = 1\n"
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


async def test_a_file_that_was_not_read_is_not_replaced(tmp_path: Path):
    (tmp_path / "a").write_text("mine\n")
    async with a_bench(tmp_path) as bench:
        with pytest.raises(ToolMistake, match="Read it first"):
            await write(bench, "a")
    assert (tmp_path / "a").read_text() == "mine\n"


async def test_a_file_that_was_read_is_replaced_and_keeps_its_mode(tmp_path: Path):
    (tmp_path / "run").write_text("old\n")
    (tmp_path / "run").chmod(0o751)
    async with a_bench(tmp_path) as bench:
        await bench.said("Read", file_path="run")
        call = await bench.prepare("Write", file_path="run", content="new\n")
        assert call.intent.shown == (
            DiffPart(path=str(tmp_path / "run"), old="old\n", new="new\n"),
        )
        assert (await bench.run(call)).text == "Replaced run (1 line)"
        assert await write(bench, "run", "newer") == "Replaced run (1 line)"
    assert (tmp_path / "run").read_text() == "newer"
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o751
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


async def test_a_file_that_changed_since_it_was_read_is_not_replaced(tmp_path: Path):
    (tmp_path / "a").write_text("one\n")
    async with a_bench(tmp_path) as bench:
        await bench.said("Read", file_path="a")
        (tmp_path / "a").write_text("two\n")
        with pytest.raises(ToolMistake, match="changed since"):
            await write(bench, "a")
        assert (tmp_path / "a").read_text() == "two\n"
        await bench.said("Read", file_path="a")
        await write(bench, "a")
    assert (tmp_path / "a").read_text() == "new\n"


async def test_a_file_that_changes_while_a_person_is_asked_is_not_replaced(tmp_path: Path):
    (tmp_path / "a").write_text("one\n")
    async with a_bench(tmp_path) as bench:
        await bench.said("Read", file_path="a")
        call = await bench.prepare("Write", file_path="a", content="new\n")
        (tmp_path / "a").write_text("two\n")
        with pytest.raises(ToolMistake, match="changed since"):
            await bench.run(call)
        late = await bench.prepare("Write", file_path="b", content="new\n")
        (tmp_path / "b").write_text("somebody was quicker\n")
        with pytest.raises(ToolMistake, match="Read it first"):
            await bench.run(late)
    assert (tmp_path / "a").read_text() == "two\n"
    assert (tmp_path / "b").read_text() == "somebody was quicker\n"


async def test_only_touching_a_file_is_no_change(tmp_path: Path):
    (tmp_path / "a").write_text("one\n")
    async with a_bench(tmp_path) as bench:
        await bench.said("Read", file_path="a")
        os.utime(tmp_path / "a", (0, 0))
        await write(bench, "a")
    assert (tmp_path / "a").read_text() == "new\n"


async def test_a_link_stays_a_link(tmp_path: Path):
    (tmp_path / "real").write_text("old\n")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "dangling").symlink_to("made")
    async with a_bench(tmp_path) as bench:
        await bench.said("Read", file_path="link")
        await write(bench, "link")
        await write(bench, "dangling")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new\n"
    assert (tmp_path / "made").read_text() == "new\n"


async def test_what_is_no_file_is_not_written(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    async with a_bench(tmp_path) as bench:
        for name, why in (("pipe", "pipe"), ("folder", "folder"), ("binary", "not text")):
            with pytest.raises(ToolMistake, match=why):
                await write(bench, name)
        with pytest.raises(ToolMistake, match="part of the path is a file"):
            await write(bench, "binary/below")


async def test_the_empty_file_and_odd_texts_are_written_as_given(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        for name, content in (("a", ""), ("b", "x\r\ny"), ("c", "\ufeffz\n"), ("d", "\0")):
            await write(bench, name, content)
            assert (tmp_path / name).read_bytes() == content.encode()


GUARDED = (
    *(".git/hooks/pre-commit", "sub/.git/config", ".goent/config.yaml", ".GIT/config"),
    *(".vscode/tasks.json", "OpenCode.json", ".github/workflows/ci.yaml", ".claude/settings.json"),
    *("hooks/pre-commit", "one/two/tasks.json"),
)


async def test_what_makes_other_programs_act_is_asked_in_every_mode(tmp_path: Path):
    (tmp_path / ".git" / "hooks").mkdir(parents=True)
    (tmp_path / "hooks").symlink_to(".git/hooks")
    (tmp_path / "settings").mkdir()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "two").symlink_to("../.idea")
    async with a_bench(tmp_path) as bench:
        permits = SessionPermissions("accept-edits")
        ordinary = await bench.prepare("Write", file_path=".github/ci.yaml", content="x")
        assert permits.judge(ordinary.intent).action == "allow"
        assert ordinary.intent.need
        permits.grant(ordinary.intent.need)
        for name in GUARDED:
            call = await bench.prepare("Write", file_path=name, content="x")
            assert permits.judge(call.intent).action == "ask", name
            assert call.intent.need and "run other programs" in call.intent.need.reason


async def test_a_guarded_name_that_is_a_link_is_guarded_too(tmp_path: Path):
    """The program that obeys it follows the link as well."""
    (tmp_path / "settings").mkdir()
    (tmp_path / ".vscode").symlink_to("settings")
    async with a_bench(tmp_path) as bench:
        call = await bench.prepare("Write", file_path=".vscode/tasks.json", content="x")
        assert call.intent.need and "VS Code" in call.intent.need.reason


async def test_what_a_guarded_link_leads_to_is_guarded(tmp_path: Path):
    (tmp_path / "settings").mkdir()
    (tmp_path / ".vscode").symlink_to("settings")
    async with a_bench(tmp_path) as bench:
        call = await bench.prepare("Write", file_path="settings/tasks.json", content="x")
        assert call.intent.need and "'.vscode' leads there" in call.intent.need.reason


async def test_a_session_in_a_guarded_folder_of_its_checkout_is_asked(tmp_path: Path):
    (tmp_path / ".git").mkdir()
    below = tmp_path / ".github"
    below.mkdir()
    async with a_bench(below) as bench:
        call = await bench.prepare("Write", file_path="workflows/ci.yml", content="x")
        assert call.intent.need and "GitHub Actions" in call.intent.need.reason


async def test_a_session_inside_a_guarded_folder_is_no_longer_asked_for_that(tmp_path: Path):
    below = tmp_path / ".claude" / "worktrees" / "one"
    below.mkdir(parents=True)
    (tmp_path / "there").symlink_to(below)
    for cwd in (below, tmp_path / "there"):
        async with a_bench(cwd) as bench:
            call = await bench.prepare("Write", file_path="a.py", content="x")
            assert call.intent.need and not call.intent.need.reason


async def test_a_file_too_long_to_be_known_is_not_replaced(tmp_path: Path):
    (tmp_path / "long").write_bytes(b"x" * 10_000_001)
    async with a_bench(tmp_path) as bench:
        await bench.said("Read", file_path="long")
        with pytest.raises(ToolMistake, match="too large"):
            await write(bench, "long")
