"""Tools of real MCP servers, made with the official SDK, on their pipes."""

import os
from pathlib import Path

import anyio
import msgspec
import pytest
from mcp_desk import PATIENT, a_desk, rough, sdk, until, use

from goent.agent.agent_ports import PermissionNeed, ToolMistake
from goent.agent.mcp.mcp_client import open_mcp_servers
from goent.proc.process_table import start_time

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.mark.parametrize("era", ["", "newer"])
async def test_tools_of_an_sdk_server_are_offered_and_work(tmp_path: Path, era: str):
    spec = sdk("calc", era)
    async with open_mcp_servers([spec], a_desk(tmp_path), patience=PATIENT) as servers:
        assert servers.warnings == ()
        tool = servers.tools["mcp__calc__add"]
        assert tool.description == "Add two numbers."
        assert {"a", "b"} == set(msgspec.json.decode(tool.schema)["required"])

        call = await tool.prepare(b'{"a": 2, "b": 40}')
        assert call.intent.title == "calc: Add up"
        assert call.intent.need == PermissionNeed(
            permission="mcp", patterns=("mcp__calc__add",), always=("mcp__calc__add",)
        )
        assert not call.intent.runs_alone, "it says of itself that it only reads"

        done = await use(servers, "mcp__calc__add", b'{"a": 2, "b": 40}')
        assert msgspec.json.decode(done.text) == {"total": 42}, "told once, not as text and JSON"
        assert not done.failed

        drawn = await use(servers, "mcp__calc__picture")
        assert [image.media_type for image in drawn.images] == ["image/png"]
        told = await use(servers, "mcp__calc__resources")
        assert "file:///notes.txt" in told.text and "what is in it" in told.text

        failed = await use(servers, "mcp__calc__fail")
        assert (failed.failed, failed.text) == (True, "no luck")
        wrong = await use(servers, "mcp__calc__add", b'{"a": "many"}')
        assert wrong.failed


async def test_a_server_has_its_own_environment_and_the_sessions_directory(tmp_path: Path):
    one, other = sdk("one", MINE="first"), sdk("other", FROM_THE_DESK="mine")
    async with open_mcp_servers([one, other], a_desk(tmp_path), patience=PATIENT) as servers:
        for tool, name, value in (
            ("mcp__one__surroundings", "MINE", "first"),
            ("mcp__one__surroundings", "FROM_THE_DESK", "desk"),
            ("mcp__other__surroundings", "FROM_THE_DESK", "mine"),
            ("mcp__other__surroundings", "MINE", "None"),
        ):
            done = await use(servers, tool, msgspec.json.encode({"name": name}))
            assert done.text == f"{value} {tmp_path}"

        roots = await use(servers, "mcp__one__roots")
        assert roots.text.rstrip("/") == tmp_path.as_uri()


async def test_a_huge_result_is_cut_and_says_so(tmp_path: Path):
    async with open_mcp_servers([sdk()], a_desk(tmp_path), patience=PATIENT) as servers:
        done = await use(servers, "mcp__sdk__much", b'{"size": 5000000}')
    assert len(done.text) < 70_000
    assert "characters left out" in done.text


async def test_tools_that_come_later_are_offered_and_names_stay(tmp_path: Path):
    async with open_mcp_servers([sdk()], a_desk(tmp_path), patience=PATIENT) as servers:
        before = set(servers.tools)
        await use(servers, "mcp__sdk__grow")
        await until(lambda: "mcp__sdk__late" in servers.tools)
        assert set(servers.tools) == before | {"mcp__sdk__late"}
        assert (await use(servers, "mcp__sdk__late")).text == "here I am"


@pytest.mark.parametrize("era", ["", "newer"])
async def test_a_cancelled_call_is_cancelled_at_the_server(tmp_path: Path, era: str):
    async with open_mcp_servers([sdk("sdk", era)], a_desk(tmp_path), patience=PATIENT) as servers:
        held = msgspec.json.encode({"folder": str(tmp_path)})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(use, servers, "mcp__sdk__hold", held)
            await until((tmp_path / "held").exists)
            tasks.cancel_scope.cancel()
        await until((tmp_path / "cancelled").exists)
        assert not (await use(servers, "mcp__sdk__add", b'{"a": 1, "b": 1}')).failed


async def test_a_server_that_dies_in_a_call_fails_it_and_its_tools_say_so(tmp_path: Path):
    specs = [sdk(), rough("noisy")]
    async with open_mcp_servers(specs, a_desk(tmp_path), patience=PATIENT) as servers:
        for _ in range(2):
            done = await use(servers, "mcp__sdk__die")
            assert done.failed
            assert "exit code 7" in done.text and "I cannot go on" in done.text
        assert any("'sdk'" in warning and "exit code 7" in warning for warning in servers.warnings)
        assert (await use(servers, "mcp__noisy__t")).text == "fine", "its sibling goes on"


async def test_nothing_that_a_server_started_outlives_the_session(tmp_path: Path):
    async with open_mcp_servers([sdk()], a_desk(tmp_path), patience=PATIENT) as servers:
        child = int((await use(servers, "mcp__sdk__fork")).text)
        assert start_time(child)
    assert start_time(child) is None
    assert os.getpid() != child


async def test_arguments_that_are_no_object_are_the_models_mistake(tmp_path: Path):
    async with open_mcp_servers([rough("noisy")], a_desk(tmp_path), patience=PATIENT) as servers:
        for arguments in (b"[1]", b'"x"', b"{", b"[" * 100_000):
            with pytest.raises(ToolMistake, match="mcp__noisy__t"):
                await servers.tools["mcp__noisy__t"].prepare(arguments)
        assert (await use(servers, "mcp__noisy__t", b"")).text == "fine"
