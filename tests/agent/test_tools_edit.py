"""Edit: an exact replacement, or a miss that helps."""

from pathlib import Path

import anyio
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tool_bench import a_bench

from goent.agent.agent_events import DiffPart, FileLocation
from goent.agent.agent_ports import PermissionNeed, ToolMistake
from goent.agent.tools.file_tools import ReplacementError, replace_text

pytestmark = pytest.mark.anyio

CODE = "def one():\n    return 1\n\n\ndef two():\n\treturn 2\n"


async def edit(cwd: Path, old: str, new: str, *, replace_all: bool = False) -> str:
    async with a_bench(cwd) as bench:
        return await bench.said(
            "Edit", file_path="a", old_string=old, new_string=new, replace_all=replace_all
        )


async def test_an_edit_is_shown_before_it_is_done_and_an_editor_can_follow(tmp_path: Path):
    path = tmp_path / "a"
    path.write_text(CODE)
    path.chmod(0o700)
    after = CODE.replace("return 1", "return 11")
    async with a_bench(tmp_path) as bench:
        call = await bench.prepare(
            "Edit", file_path="a", old_string="return 1", new_string="return 11"
        )
        assert call.intent.need == PermissionNeed(
            permission="edit", patterns=(str(path),), always=(f"{tmp_path}/*",)
        )
        assert call.intent.runs_alone
        assert call.intent.shown == (DiffPart(path=str(path), old=CODE, new=after),)
        assert call.intent.locations == (FileLocation(path=str(path), line=2),)
        assert path.read_text() == CODE
        done = await bench.run(call)
    assert done.text == "Edited a (in line 2)"
    assert done.shown == call.intent.shown
    assert path.read_text() == after
    assert path.stat().st_mode & 0o777 == 0o700


async def test_edits_follow_each_other_without_reading_again(tmp_path: Path):
    (tmp_path / "a").write_text(CODE)
    async with a_bench(tmp_path) as bench:
        await bench.said("Read", file_path="a")
        for old, new in (("one", "first"), ("two", "second"), ("first", "uno")):
            await bench.said("Edit", file_path="a", old_string=old, new_string=new)
        await bench.said("Write", file_path="a", content="all new\n")
    assert (tmp_path / "a").read_text() == "all new\n"


async def test_several_places_are_a_mistake_with_their_lines_unless_all_are_meant(tmp_path: Path):
    (tmp_path / "a").write_text(CODE)
    with pytest.raises(ToolMistake, match=r"2 times, in lines 2, 6"):
        await edit(tmp_path, "return", "yield")
    told = await edit(tmp_path, "return", "yield", replace_all=True)
    assert told == "Edited a (2 times, first in line 2)"
    assert (tmp_path / "a").read_text() == CODE.replace("return", "yield")


@pytest.mark.parametrize(
    ("old", "hint"),
    [
        ("def one():\n  return 1\n", r"differs only in spaces or tabs:\n     1\tdef one"),
        ("    return 2", r"differs only in spaces or tabs:\n     6\t\treturn 2"),
        ("     2\t    return 1", r"leave out the line numbers"),
        ("def on():", r"most similar lines:\n     1\tdef one"),
        ("completely different", r"nor anything similar"),
        ("\n\n\n\n\n", "only whitespace"),
        ("\t\t\t", "only whitespace"),
    ],
)
async def test_a_miss_says_what_came_near(tmp_path: Path, old: str, hint: str):
    (tmp_path / "a").write_text(CODE)
    with pytest.raises(ToolMistake, match=hint):
        await edit(tmp_path, old, "x")
    assert (tmp_path / "a").read_text() == CODE


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n", b"x\r\ny\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\nc\r\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nc", "x\ny", b"x\r\ny\r\n"),
        (b"a\nb\r\n", "a", "x\ny", b"x\ny\nb\r\n"),
        (b"a\r\nb", "b", "x\ny", b"a\r\nx\r\ny"),
        (b"a\nb", "a\r\nb", "x\r\ny", b"x\ny"),
        (b"a\nb", "b\n", "x\n", b"a\nx"),
        (b"a\nb", "b", "x", b"a\nx"),
        (b"\xef\xbb\xbfa\nb\n", "a", "x", b"\xef\xbb\xbfx\nb\n"),
        (b"gr\xfcn\na\n", "a", "x", b"gr\xfcn\nx\n"),
        (b"a", "a", "", b""),
        (b"\ra\r\n", "\ra", "x", b"x\r\n"),
    ],
)
async def test_what_is_not_edited_stays_as_it_is(
    tmp_path: Path, before: bytes, old: str, new: str, after: bytes
):
    (tmp_path / "a").write_bytes(before)
    await edit(tmp_path, old, new)
    assert (tmp_path / "a").read_bytes() == after


async def test_a_file_that_is_not_utf_8_does_not_become_two_things_at_once(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"gr\xfcn\n")
    with pytest.raises(ToolMistake, match="only ASCII"):
        await edit(tmp_path, "gr", "für")
    assert (tmp_path / "a").read_bytes() == b"gr\xfcn\n"


async def test_a_file_that_changed_since_it_was_read_is_read_again_first(tmp_path: Path):
    (tmp_path / "a").write_text(CODE)
    async with a_bench(tmp_path) as bench:
        await bench.said("Read", file_path="a")
        call = await bench.prepare("Edit", file_path="a", old_string="one", new_string="uno")
        (tmp_path / "a").write_text(CODE + "# somebody was here\n")
        with pytest.raises(ToolMistake, match="Read it again"):
            await bench.run(call)
        with pytest.raises(ToolMistake, match="Read it again"):
            await bench.prepare("Edit", file_path="a", old_string="one", new_string="uno")
    assert (tmp_path / "a").read_text().startswith(CODE)


async def test_nothing_to_change_nothing_to_look_for_and_no_file(tmp_path: Path):
    (tmp_path / "a").write_text(CODE)
    with pytest.raises(ToolMistake, match="the same"):
        await edit(tmp_path, "one", "one")
    with pytest.raises(ToolMistake, match="empty"):
        await edit(tmp_path, "", "one")
    (tmp_path / "a").unlink()
    with pytest.raises(ToolMistake, match="use Write"):
        await edit(tmp_path, "one", "two")


async def test_of_a_long_file_only_the_change_is_shown(tmp_path: Path):
    lines = [f"line {n}\n" for n in range(30_000)]
    (tmp_path / "a").write_text("".join(lines))
    async with a_bench(tmp_path) as bench:
        call = await bench.prepare(
            "Edit", file_path="a", old_string="line 20000\n", new_string="here\n"
        )
    (shown,) = call.intent.shown
    assert isinstance(shown, DiffPart)
    assert shown.old == "".join(lines[19_997:20_004])
    assert shown.new == "".join([*lines[19_997:20_000], "here\n", *lines[20_001:20_004]])
    assert call.intent.locations[0].line == 20_001


async def test_a_miss_in_a_long_file_of_similar_lines_is_told_soon(tmp_path: Path):
    line = "{" + ", ".join(f'"field_{n}": {n}' for n in range(40)) + "}"
    (tmp_path / "a").write_text(f"{line}\n" * 12_000)
    with anyio.fail_after(60), pytest.raises(ToolMistake, match="most similar"):
        await edit(tmp_path, line.replace("field_3", "field_X"), "x")


TEXT = st.text(st.sampled_from("ab \n"), max_size=30)


@given(TEXT, TEXT.filter(bool), TEXT)
def test_an_edit_is_what_replacing_is(text: str, old: str, new: str):
    count = text.count(old)
    if count == 0:
        at_the_end = old.endswith("\n") and text.endswith(old[:-1])
        assume(not at_the_end)
    if count == 1:
        assert replace_text(text, old, new).text == text.replace(old, new)
    else:
        with pytest.raises(ReplacementError):
            replace_text(text, old, new)
    if count:
        assert replace_text(text, old, new, everywhere=True).text == text.replace(old, new)


@given(TEXT, TEXT.filter(bool), TEXT, TEXT)
def test_a_file_with_other_line_endings_is_edited_alike(
    before: str, old: str, after: str, new: str
):
    text = f"{before}{old}{after}\n"
    there = replace_text(text.replace("\n", "\r\n"), old, new, everywhere=True)
    here = replace_text(text, old, new, everywhere=True)
    assert there.text == here.text.replace("\n", "\r\n")
    assert (there.line, there.count) == (here.line, here.count)
