import os
from pathlib import Path

import pytest

from goent.git.git_workspaces import read_file_states

pytestmark = pytest.mark.anyio


async def test_every_file_but_gits_is_seen_with_size_and_time(tmp_path: Path):
    (tmp_path / "sub" / ".git").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    for name in ("a.txt", "sub/b.txt", ".git/index", "sub/.git/HEAD"):
        (tmp_path / name).write_text("four")
    (tmp_path / "link").symlink_to("sub")
    found = await read_file_states(tmp_path)
    assert found.complete
    assert sorted(found.states) == ["a.txt", "link", "sub/b.txt"]
    assert found.states["sub/b.txt"] == (4, (tmp_path / "sub/b.txt").stat().st_mtime_ns)


async def test_a_name_that_is_no_text_is_told_readably(tmp_path: Path):
    (tmp_path / os.fsdecode(b"caf\xe9")).write_text("")
    assert list((await read_file_states(tmp_path)).states) == ["caf\\xe9"]


async def test_it_is_bounded_in_number_and_time(tmp_path: Path):
    (tmp_path / "deep").mkdir()
    for n in range(20):
        (tmp_path / f"{n}.txt").write_text("")
        (tmp_path / "deep" / f"{n}.txt").write_text("")
    few = await read_file_states(tmp_path, most=25)
    assert not few.complete and len(few.states) == 25
    assert all(f"{n}.txt" in few.states for n in range(20))
    assert not (await read_file_states(tmp_path, seconds=-1)).complete
    assert (await read_file_states(tmp_path / "none")).states == {}
