"""Read: lines with numbers, of whatever somebody calls a file."""

import base64
import os
import socket
import tracemalloc
from pathlib import Path

import anyio
import pytest
from tool_bench import a_bench

from goent.agent.agent_ports import ToolMistake
from goent.agent.tools import file_tools

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)


async def read(cwd: Path, name: str, **arguments: object) -> str:
    async with a_bench(cwd) as bench:
        return await bench.said("Read", file_path=name, **arguments)


async def test_lines_come_with_numbers_and_the_answer_says_how_many_there_are(tmp_path: Path):
    (tmp_path / "a.py").write_text("x = 1\n\ny = 2\n")
    assert await read(tmp_path, "a.py") == "     1\tx = 1\n     2\t\n     3\ty = 2\n(3 lines)"


async def test_an_absolute_path_and_a_last_line_without_an_end(tmp_path: Path):
    (tmp_path / "a").write_text("one\ntwo")
    assert await read(tmp_path, str(tmp_path / "a")) == "     1\tone\n     2\ttwo\n(2 lines)"


async def test_of_a_long_file_a_part_comes_and_how_to_go_on(tmp_path: Path):
    (tmp_path / "long").write_text("".join(f"{n}\n" for n in range(1, 5001)))
    first = await read(tmp_path, "long")
    assert first.endswith("  2000\t2000\n(lines 1-2000 of 5000; continue with offset 2001)")
    last = await read(tmp_path, "long", offset=4999)
    assert last == "  4999\t4999\n  5000\t5000\n(lines 4999-5000 of 5000)"
    assert await read(tmp_path, "long", offset=0, limit=9999) == first
    one = await read(tmp_path, "long", offset=7, limit=1)
    assert one == "     7\t7\n(lines 7-7 of 5000; continue with offset 8)"


async def test_an_offset_behind_the_end_is_a_mistake_that_tells_the_end(tmp_path: Path):
    (tmp_path / "a").write_text("one\ntwo")
    with pytest.raises(ToolMistake, match="only 2 lines"):
        await read(tmp_path, "a", offset=3)


async def test_long_lines_are_cut(tmp_path: Path):
    (tmp_path / "wide").write_text("ä" * 3000 + "\nshort\n")
    told = await read(tmp_path, "wide")
    assert f"{'ä' * file_tools.MAX_LINE_CHARS} [cut" in told
    assert "ä" * (file_tools.MAX_LINE_CHARS + 1) not in told
    assert "     2\tshort\n" in told


async def test_wide_files_come_in_parts_that_join(tmp_path: Path):
    (tmp_path / "wide").write_text("".join(f"{n}{'x' * 1500}\n" for n in range(1, 200)))
    offset, numbers = 1, list[str]()
    while True:
        told = await read(tmp_path, "wide", offset=offset)
        assert len(told) < 100_000
        *lines, last = told.split("\n")
        numbers += [line.split("\t")[1].rstrip("x") for line in lines]
        if "continue with" not in last:
            break
        offset = int(last.rpartition(" ")[2].rstrip(")"))
    assert numbers == [str(n) for n in range(1, 200)]


async def test_a_file_of_gigabytes_is_not_read_whole(tmp_path: Path):
    with (tmp_path / "huge").open("wb") as file:
        file.write(b"first\nsecond\n" + b"x" * 20_000)
        file.truncate(30_000_000_000)  # one line, most of which takes no space
    tracemalloc.start()
    with anyio.fail_after(60):
        told = await read(tmp_path, "huge")
    assert tracemalloc.get_traced_memory()[1] < 20_000_000
    tracemalloc.stop()
    assert told.startswith("     1\tfirst\n     2\tsecond\n     3\txxx")
    assert told.endswith("(lines 1-3 of a very long file; continue with offset 4)")


async def test_a_line_of_many_megabytes_is_passed_over(tmp_path: Path):
    (tmp_path / "wide").write_bytes(b"first\n" + b"x" * 20_000_000 + b"\nthird\n")
    told = await read(tmp_path, "wide")
    assert told.endswith("     3\tthird\n(3 lines)")


async def test_the_end_of_a_file_that_is_too_far_away_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "huge").write_bytes(b"0123456789\n" * 2_000_000)
    monkeypatch.setattr(file_tools, "MAX_SCANNED_BYTES", 5_000_000)
    told = await read(tmp_path, "huge", limit=1)
    assert told.endswith("(lines 1-1 of a very long file; continue with offset 2)")
    with pytest.raises(ToolMistake, match="sed"):
        await read(tmp_path, "huge", offset=1_900_000)


async def test_an_empty_file_is_called_so(tmp_path: Path):
    (tmp_path / "empty").touch()
    assert await read(tmp_path, "empty") == "(empty is empty)"


async def test_binary_files_are_named_not_dumped(tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(b"ab\0cd" * 10)
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7 ...")
    assert await read(tmp_path, "a.bin") == "(a.bin is not text: binary, 50 bytes)"
    assert await read(tmp_path, "a.pdf") == "(a.pdf is not text: PDF, 12 bytes)"


async def test_an_image_is_shown(tmp_path: Path):
    (tmp_path / "a.dat").write_bytes(PNG)
    async with a_bench(tmp_path) as bench:
        seen = await bench.call("Read", file_path="a.dat")
    (image,) = seen.images
    assert image.media_type == "image/png"
    assert base64.b64decode(image.data) == PNG


async def test_an_image_that_is_too_large_is_not_sent(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(PNG + bytes(5_000_000))
    async with a_bench(tmp_path) as bench:
        seen = await bench.call("Read", file_path="a.png")
    assert seen.images == ()
    assert "too large" in seen.text


async def test_text_that_is_not_utf_8_is_shown_and_said(tmp_path: Path):
    (tmp_path / "latin").write_bytes("grün\n".encode("latin-1"))
    told = await read(tmp_path, "latin")
    assert "gr\N{REPLACEMENT CHARACTER}n" in told
    assert "not all of it is UTF-8" in told


async def test_line_endings_and_byte_order_marks_are_not_shown(tmp_path: Path):
    (tmp_path / "dos").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    assert await read(tmp_path, "dos") == "     1\tone\n     2\ttwo\n(2 lines)"


async def test_a_folder_is_listed(tmp_path: Path):
    (tmp_path / "b").mkdir()
    (tmp_path / "a").touch()
    assert await read(tmp_path, ".") == "a\nb/"


async def test_a_missing_file_is_answered_with_what_is_meant(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "Reader.py").touch()
    with pytest.raises(ToolMistake, match=r"Did you mean 'src/Reader.py'"):
        await read(tmp_path, "src/raeder.py")
    with pytest.raises(ToolMistake, match="its folder does not exist"):
        await read(tmp_path, "lib/deep/reader.py")


async def test_what_could_block_is_refused_at_once(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        for name, kind in (("pipe", "a pipe"), ("socket", "a socket"), ("/dev/zero", "a device")):
            with anyio.fail_after(10), pytest.raises(ToolMistake, match=kind):
                await read(tmp_path, name)


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 300, "/".join("d" * 100 for _ in range(60))])
async def test_what_is_no_path_is_a_mistake(tmp_path: Path, name: str):
    with pytest.raises(ToolMistake):
        await read(tmp_path, name)


async def test_a_link_that_leads_to_itself_is_a_mistake(tmp_path: Path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(ToolMistake, match="a link to itself"):
        await read(tmp_path, "a")


async def test_a_file_below_a_file_is_a_mistake(tmp_path: Path):
    (tmp_path / "a").touch()
    with pytest.raises(ToolMistake):
        await read(tmp_path, "a/b")


async def test_names_that_are_no_text_are_shown_so_that_they_can_be(tmp_path: Path):
    (tmp_path / "two\nlines").write_text("odd\n")
    (tmp_path / os.fsdecode(b"gr\xfcn")).mkdir()
    assert await read(tmp_path, ".") == "gr\\xfcn/\ntwo\\nlines"
    assert "odd" in await read(tmp_path, "two\nlines")
