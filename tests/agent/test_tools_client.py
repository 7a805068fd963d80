"""Files through the client's editor and commands in its terminals, where it offers them."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import anyio
import pytest
from tool_bench import a_bench, names_in, until

from goent.agent.agent_events import TerminalPart
from goent.agent.agent_ports import ClientTerminal, ToolMistake, ToolProgress
from goent.agent.tools import session_files

pytestmark = pytest.mark.anyio


class Editor:
    """An editor with buffers: what is not in one is on the disk."""

    def __init__(self, buffers: Mapping[Path, str] | None = None, *, empty: bool = False) -> None:
        """`empty`: what is nowhere is told as an empty text."""
        self.empty = empty
        self.buffers = dict(buffers or {})
        self.asked: list[Path] = []
        self.refuses = False
        self.hangs = False

    async def read(self, path: Path) -> str:
        self.asked.append(path)
        await self._answer()
        if path in self.buffers:
            return self.buffers[path]
        if self.empty and not path.exists():
            return ""
        return path.read_text()

    async def write(self, path: Path, text: str) -> None:
        await self._answer()
        self.buffers[path] = text
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    async def _answer(self) -> None:
        if self.hangs:
            await anyio.sleep_forever()
        if self.refuses:
            raise OSError("not now")


async def test_unsaved_changes_are_read_and_edited(tmp_path: Path):
    path = tmp_path / "a"
    path.write_text("saved\n")
    editor = Editor({path: "unsaved\n", tmp_path / "new": "never saved\n"})
    async with a_bench(tmp_path, reading=editor, writing=editor) as bench:
        assert "unsaved" in await bench.said("Read", file_path="a")
        assert "never saved" in await bench.said("Read", file_path="new")
        await bench.said("Edit", file_path="a", old_string="unsaved", new_string="edited")
        await bench.said("Write", file_path="deep/b", content="written\n")
        editor.buffers[path] = "typed by the user\n"
        with pytest.raises(ToolMistake, match="Read it again"):
            await bench.said("Edit", file_path="a", old_string="edited", new_string="x")
    assert editor.buffers[tmp_path / "deep/b"] == "written\n"
    assert path.read_text() == "edited\n"


async def test_an_empty_text_of_a_file_that_is_nowhere_is_no_file(tmp_path: Path):
    """As toad and CodeCompanion answer; of a file that is there it is an emptied buffer."""
    path = tmp_path / "there"
    path.write_text("saved\n")
    editor = Editor({path: ""}, empty=True)
    async with a_bench(tmp_path, reading=editor, writing=editor) as bench:
        with pytest.raises(ToolMistake, match="there is no 'new'"):
            await bench.said("Read", file_path="new")
        assert "Created" in await bench.said("Write", file_path="new", content="made\n")
        assert "Replaced" in await bench.said("Write", file_path="new", content="again\n")
        assert "is empty" in await bench.said("Read", file_path="there")
    assert (tmp_path / "new").read_text() == "again\n"


async def test_an_editor_that_cannot_read_leaves_the_disk(tmp_path: Path):
    (tmp_path / "a").write_text("saved\n")
    editor = Editor()
    editor.refuses = True
    async with a_bench(tmp_path, reading=editor) as bench:
        assert "saved" in await bench.said("Read", file_path="a")


async def test_an_editor_that_refuses_to_write_is_obeyed(tmp_path: Path):
    editor = Editor()
    editor.refuses = True
    async with a_bench(tmp_path, writing=editor) as bench:
        with pytest.raises(ToolMistake, match="not now"):
            await bench.said("Write", file_path="a", content="x")
    assert not (tmp_path / "a").exists()


async def test_an_editor_that_does_not_answer_does_not_hold_us(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(session_files, "CLIENT_S", 0.1)
    (tmp_path / "a").write_text("saved\n")
    editor = Editor()
    editor.hangs = True
    async with a_bench(tmp_path, reading=editor, writing=editor) as bench:
        for tool, arguments in (("Read", {}), ("Write", {"content": "x"})):
            with pytest.raises(ToolMistake, match="did not"):
                await bench.said(tool, file_path="a", **arguments)


async def test_what_an_editor_has_no_word_for_stays_ours(tmp_path: Path):
    (tmp_path / "binary").write_bytes(b"\0\1")
    (tmp_path / "latin").write_bytes(b"gr\xfcn\n")
    (tmp_path.parent / "outside-of-it").write_text("outside\n")
    editor = Editor()
    async with a_bench(tmp_path, reading=editor, writing=editor) as bench:
        await bench.said("Read", file_path="binary")
        await bench.said("Read", file_path="latin")
        await bench.said("Read", file_path="../outside-of-it")
        await bench.said("Edit", file_path="latin", old_string="gr", new_string="GR")
    assert editor.asked == []
    assert (tmp_path / "latin").read_bytes() == b"GR\xfcn\n"


async def test_line_endings_that_an_editor_keeps_aside_stay(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    editor = Editor({path: "one\ntwo, unsaved\n"})
    async with a_bench(tmp_path, reading=editor) as bench:
        await bench.said("Read", file_path="a")
        await bench.said("Edit", file_path="a", old_string="one\n", new_string="1\n\n")
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n\r\ntwo, unsaved\r\n"


async def test_an_editor_is_not_led_outside_by_a_link_that_came_later(tmp_path: Path):
    (tmp_path / "inside" / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    editor = Editor()
    async with a_bench(tmp_path / "inside", writing=editor) as bench:
        call = await bench.prepare("Write", file_path="sub/a", content="x")
        (tmp_path / "inside" / "sub").rmdir()
        (tmp_path / "inside" / "sub").symlink_to("../outside")
        with pytest.raises(ToolMistake):
            await bench.run(call)
    assert names_in(tmp_path / "outside") == []


class Screen:
    """A client's terminal: a real process whose output goes to a file."""

    def __init__(self, command: tuple[str, ...], cwd: Path, env: Mapping[str, str]) -> None:
        self.id = "term_1"
        self.calls: list[str] = []
        self.env = env
        self._said = cwd / ".terminal"
        with self._said.open("wb") as out:
            self.process = subprocess.Popen(
                command, cwd=cwd, env={**os.environ, "CLIENTS_KEY": "secret", **env}, stdout=out
            )

    async def output(self) -> tuple[str, int | None]:
        return self._said.read_text(), self.process.poll()

    async def wait(self) -> int | None:
        while self.process.poll() is None:  # noqa: ASYNC110 (a process says nothing)
            await anyio.sleep(0.02)
        return self.process.returncode

    async def kill(self) -> None:
        self.calls.append("kill")
        self.process.kill()

    async def release(self) -> None:
        self.calls.append("release")
        self.process.wait()


class Screens:
    """Makes terminals."""

    def __init__(self) -> None:
        self.made: list[Screen] = []
        self.full = False

    async def create(
        self,
        command: str,
        arguments: tuple[str, ...],
        cwd: Path,
        env: Mapping[str, str],
        limit: int,
    ) -> ClientTerminal:
        if self.full:
            raise OSError("no more terminals")
        self.made.append(Screen((command, *arguments), cwd, env))
        return self.made[-1]


async def test_a_command_runs_in_the_clients_terminal_and_is_shown_there(tmp_path: Path):
    screens = Screens()
    async with a_bench(tmp_path, terminals=screens) as bench:
        done = await bench.call("Bash", command="echo one; echo two >&2; exit 3")
        assert bench.told == [ToolProgress(shown=(TerminalPart(id="term_1"),))]
    assert (done.text, done.exit) == ("one\ntwo\n(exit code 3)", 3)
    assert done.shown == (TerminalPart(id="term_1"),)
    assert screens.made[0].calls == ["kill", "release"]


async def test_what_the_client_has_in_its_environment_does_not_reach_the_command(tmp_path: Path):
    for free in (False, True):
        async with a_bench(tmp_path, terminals=Screens(), environ={"MINE": "yes"}) as bench:
            told = await bench.said("Bash", command="env", unconfined=free)
        assert "MINE=yes" in told
        assert "NO_COLOR=1" in told
        assert "secret" not in told


async def test_in_a_terminal_a_command_is_confined_too(tmp_path: Path):
    async with a_bench(tmp_path, terminals=Screens()) as bench:
        done = await bench.call("Bash", command="touch /etc/goent-test-was-here")
    assert done.exit == 1


async def test_a_terminal_is_left_empty_when_the_time_is_up_or_the_turn_is_cancelled(
    tmp_path: Path,
):
    screens = Screens()
    command = "setsid sleep 300 & echo begun; sleep 300"
    async with a_bench(tmp_path, terminals=screens) as bench:
        done = await bench.call("Bash", command=command, timeout_s=3)
        assert done.text.startswith("begun\n(not done after 3 s")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(bench.run, await bench.prepare("Bash", command=command))
            await until(lambda: len(bench.told) == 2)
            tasks.cancel_scope.cancel()
    assert [screen.calls for screen in screens.made] == [["kill", "release"]] * 2


async def test_a_client_without_a_terminal_to_spare_is_a_mistake(tmp_path: Path):
    screens = Screens()
    screens.full = True
    async with a_bench(tmp_path, terminals=screens) as bench:
        with pytest.raises(ToolMistake, match="no more terminals"):
            await bench.said("Bash", command="true")
