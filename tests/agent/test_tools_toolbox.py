"""What every tool has in common: its name, what it tells a model, and what it says to nonsense."""

import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tool_bench import a_bench

from goent.agent.agent_ports import ToolMistake
from goent.domain.types import PlanEntry

pytestmark = pytest.mark.anyio

GOOD: Mapping[str, Mapping[str, object]] = {
    "Read": {"file_path": "a"},
    "Write": {"file_path": "new", "content": "x"},
    "Edit": {"file_path": "a", "old_string": "one", "new_string": "two"},
    "Bash": {"command": "true"},
    "Grep": {"pattern": "x"},
    "Glob": {"pattern": "*"},
    "TodoWrite": {"todos": [{"content": "all", "status": "pending"}]},
}


async def test_there_are_seven_tools_and_each_tells_what_it_takes(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        assert list(bench.tools) == list(GOOD)
        for name, tool in bench.tools.items():
            schema = json.loads(msgspec.json.encode(tool.schema))
            assert tool.name == name
            assert tool.description
            assert schema["type"] == "object"
            assert GOOD[name].keys() <= schema["properties"].keys()
            assert all("description" in field for field in schema["properties"].values())
            assert b"$ref" not in msgspec.json.encode(schema)


@pytest.mark.parametrize("name", GOOD)
async def test_a_look_changes_nothing_and_says_what_will_happen(tmp_path: Path, name: str):
    (tmp_path / "a").write_text("one\n")
    async with a_bench(tmp_path) as bench:
        call = await bench.prepare(name, **GOOD[name])
        assert call.intent.title
        assert [path.name for path in tmp_path.iterdir()] == ["a"]
        assert (tmp_path / "a").read_text() == "one\n"


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize(
    "arguments",
    [b"", b"{", b"[]", b"null", b'"x"', b'{"file_path": "\\udc00"}', b"\xff\xfe", b'{"x":' * 2000],
)
async def test_what_is_no_object_is_a_mistake_that_names_the_fields(
    tmp_path: Path, name: str, arguments: bytes
):
    async with a_bench(tmp_path) as bench:
        with pytest.raises(ToolMistake, match="command" if name == "Bash" else "required"):
            await bench.tools[name].prepare(arguments)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, field) for name, good in GOOD.items() for field in good],
)
@pytest.mark.parametrize("value", [5, None, {"a": 1}, [[1]], True])
async def test_a_wrong_type_is_a_mistake_that_names_the_field(
    tmp_path: Path, name: str, wrong: str, value: object
):
    async with a_bench(tmp_path) as bench:
        with pytest.raises(ToolMistake, match=wrong):
            await bench.prepare(name, **{**GOOD[name], wrong: value})


@pytest.mark.parametrize("name", GOOD)
async def test_a_field_that_there_is_not_is_named(tmp_path: Path, name: str):
    async with a_bench(tmp_path) as bench:
        with pytest.raises(ToolMistake, match="run_in_circles"):
            await bench.prepare(name, **GOOD[name], run_in_circles=True)


async def test_numbers_in_quotes_are_what_models_write_now_and_then(tmp_path: Path):
    (tmp_path / "a").write_text("one\ntwo\n")
    async with a_bench(tmp_path) as bench:
        told = await bench.said("Read", file_path="a", offset="2", limit="1")
        assert told.startswith("     2\ttwo\n")


async def test_a_plan_is_shown(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        done = await bench.call(
            "TodoWrite",
            todos=[
                {"content": "look", "status": "completed", "activeForm": "looking"},
                {"content": "mend", "status": "in_progress"},
            ],
        )
    assert done.plan == (
        PlanEntry(text="look", status="completed"),
        PlanEntry(text="mend", status="in_progress"),
    )
    assert done.text == "The plan is shown: 1 completed, 1 in_progress."


async def test_what_is_nested_without_end_is_a_mistake(tmp_path: Path):
    deep = b"[" * 100_000 + b"]" * 100_000
    todo = b'{"todos": [{"content": "a", "status": "pending", "more": %s}]}' % deep
    async with a_bench(tmp_path) as bench:
        with pytest.raises(ToolMistake):
            await bench.tools["TodoWrite"].prepare(todo)


async def test_an_unknown_status_is_a_mistake(tmp_path: Path):
    async with a_bench(tmp_path) as bench:
        with pytest.raises(ToolMistake, match="status"):
            await bench.prepare("TodoWrite", todos=[{"content": "x", "status": "doing"}])
