"""Paths that lead outside: nothing is read or written there unless it was permitted."""

from pathlib import Path

import pytest
from tool_bench import a_bench, names_in

from goent.agent.agent_ports import PermissionNeed, ToolMistake

pytestmark = pytest.mark.anyio


@pytest.fixture
def inside(tmp_path: Path) -> Path:
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text("secret\n")
    (tmp_path / "inside" / "file").write_text("plain\n")
    return tmp_path / "inside"


def outside(path: Path) -> PermissionNeed:
    below = (f"{path}/*",) if len(path.parts) > 2 else ()
    return PermissionNeed(permission="outside", patterns=(str(path),), always=(str(path), *below))


@pytest.mark.parametrize(
    "name",
    ["../outside/secret", "link/secret", "file-link", "sub/../link/secret", "{outside}/secret"],
)
async def test_every_way_out_is_seen(inside: Path, name: str):
    there = inside.parent / "outside"
    (inside / "sub").mkdir()
    (inside / "link").symlink_to("../outside")
    (inside / "file-link").symlink_to(there / "secret")
    async with a_bench(inside) as bench:
        path = name.format(outside=there)
        calls = [
            await bench.prepare("Read", file_path=path),
            await bench.prepare("Write", file_path=path, content="x"),
            await bench.prepare("Edit", file_path=path, old_string="secret", new_string="x"),
            await bench.prepare("Grep", pattern="x", path=path),
            await bench.prepare("Glob", pattern="*", path=path),
        ]
        for call in calls:
            assert call.intent.need == outside(there / "secret")
            assert "secret\n" not in repr(call.intent.shown)
        assert "secret" in (await bench.run(calls[0])).text  # somebody said yes
        edit = await bench.prepare("Edit", file_path=path, old_string="secret", new_string="x")
        assert edit.intent.shown
        await bench.run(edit)
    assert (there / "secret").read_text() == "x\n"
    assert (inside / "file-link").is_symlink()


async def test_inside_needs_no_permission_to_look(inside: Path):
    (inside / "link").symlink_to("file")
    async with a_bench(inside) as bench:
        for name in ("file", "./file", "link", "../inside/file", str(inside / "file"), "."):
            call = await bench.prepare("Read", file_path=name)
            assert call.intent.need is None
            assert not call.intent.runs_alone


async def test_every_root_is_inside_also_by_a_link(inside: Path):
    (inside.parent / "to-inside").symlink_to(inside)
    there = inside.parent / "outside"
    async with a_bench(inside.parent / "to-inside", roots=(there,)) as bench:
        for name in ("file", str(inside / "file"), str(there / "secret"), "../outside/secret"):
            assert (await bench.prepare("Read", file_path=name)).intent.need is None
        call = await bench.prepare("Read", file_path="file")
        (location,) = call.intent.locations
        assert location.path == str(inside.parent / "to-inside" / "file")  # as the editor has it


async def test_a_folder_beside_with_the_same_beginning_is_outside(inside: Path):
    (inside.parent / "inside-too").mkdir()
    async with a_bench(inside) as bench:
        call = await bench.prepare("Read", file_path="../inside-too/x")
        assert call.intent.need == outside(inside.parent / "inside-too" / "x")


async def test_a_yes_to_one_path_cannot_become_one_to_all(inside: Path):
    (inside / "*").write_text("odd\n")
    async with a_bench(inside) as bench:
        with pytest.raises(ToolMistake, match="use plain paths"):
            await bench.prepare("Read", file_path="/*")
        assert "odd" in await bench.said("Read", file_path="*")
        for wide in ("/", "/etc"):
            call = await bench.prepare("Read", file_path=wide)
            assert call.intent.need == PermissionNeed(
                permission="outside", patterns=(wide,), always=(wide,)
            )


async def test_home_is_where_the_session_has_it(inside: Path):
    async with a_bench(inside, environ={"HOME": str(inside.parent / "outside")}) as bench:
        call = await bench.prepare("Read", file_path="~/secret")
        assert call.intent.need == outside(inside.parent / "outside" / "secret")


async def test_a_dangling_link_out_is_outside(inside: Path):
    (inside / "link").symlink_to("../outside/new")
    async with a_bench(inside) as bench:
        call = await bench.prepare("Write", file_path="link", content="x")
        assert call.intent.need == outside(inside.parent / "outside" / "new")


@pytest.mark.parametrize("tool", ["Read", "Write", "Edit", "Grep", "Glob"])
async def test_a_link_put_in_the_way_after_the_look_is_not_followed(inside: Path, tool: str):
    (inside / "sub").mkdir()
    (inside / "sub" / "secret").write_text("plain\n")
    arguments: dict[str, dict[str, str]] = {
        "Read": {"file_path": "sub/secret"},
        "Write": {"file_path": "sub/secret", "content": "x"},
        "Edit": {"file_path": "sub/secret", "old_string": "plain", "new_string": "x"},
        "Grep": {"pattern": "secret", "path": "sub"},
        "Glob": {"pattern": "*", "path": "sub"},
    }
    async with a_bench(inside) as bench:
        await bench.said("Read", file_path="sub/secret")
        call = await bench.prepare(tool, **arguments[tool])
        (inside / "sub").rename(inside / "moved")
        (inside / "sub").symlink_to("../outside")
        with pytest.raises(ToolMistake):
            await bench.run(call)
    assert (inside.parent / "outside" / "secret").read_text() == "secret\n"
    assert names_in(inside.parent / "outside") == ["secret"]


async def test_a_file_that_became_a_link_is_not_written_through(inside: Path):
    async with a_bench(inside) as bench:
        await bench.said("Read", file_path="file")
        call = await bench.prepare("Write", file_path="file", content="x")
        (inside / "file").unlink()
        (inside / "file").symlink_to("../outside/secret")
        with pytest.raises(ToolMistake):
            await bench.run(call)
    assert (inside.parent / "outside" / "secret").read_text() == "secret\n"


async def test_the_kernels_own_files_are_outside_and_never_hang(inside: Path):
    async with a_bench(inside) as bench:
        call = await bench.prepare("Read", file_path="/proc/self/status")
        assert call.intent.need
        assert "Name:" in (await bench.run(call)).text
        root = await bench.prepare("Read", file_path=str(Path("/proc/self/root", "etc")))
        assert root.intent.need == outside(Path("/etc"))


async def test_what_processes_keep_to_themselves_is_not_read(inside: Path):
    (inside / "link").symlink_to("/proc/self/environ")
    async with a_bench(inside) as bench:
        for name in ("/proc/self/environ", "/proc/1/environ", "/proc/self/mem", "link"):
            with pytest.raises(ToolMistake, match="may contain keys"):
                await bench.prepare("Read", file_path=name)
        for path in ("/proc/self", "/sys", "/dev"):
            with pytest.raises(ToolMistake, match="the kernel"):
                await bench.said("Grep", pattern="PATH", path=path)
