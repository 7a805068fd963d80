"""MCP servers with bad manners cost a warning, and never the session."""

import json
from pathlib import Path

import msgspec
import pytest
from mcp_desk import HURRIED, PATIENT, a_desk, rough, until, use

from goent.agent.agent_ports import McpServerSpec
from goent.agent.mcp.mcp_client import MAX_TOOLS, McpTimeouts, open_mcp_servers
from goent.proc.process_table import marked_processes

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("hang", "did not answer within 3 s; its standard error: thinking"),
        ("gone", "exit code 3; its standard error: no licence found"),
        ("garbage", "did not answer within 3 s"),
        ("flood", "did not answer within 3 s"),
        ("endless", "did not answer within 3 s"),
        ("nonsense", "its reply to 'initialize' is invalid"),
        ("refuses", "pay first"),
    ],
)
async def test_a_server_that_does_not_come_up_costs_a_warning(tmp_path: Path, how: str, why: str):
    desk = a_desk(tmp_path)
    async with open_mcp_servers([rough(how), rough("noisy")], desk, patience=HURRIED) as servers:
        assert list(servers.tools) == ["mcp__noisy__t"]
        [warning] = servers.warnings
        assert f"MCP server {how!r}" in warning and why in warning
    assert not list(marked_processes(desk.owner))


async def test_a_command_that_there_is_not_costs_a_warning(tmp_path: Path):
    spec = McpServerSpec(name="none", command=str(tmp_path / "missing"))
    async with open_mcp_servers([spec], a_desk(tmp_path)) as servers:
        assert not servers.tools
        [warning] = servers.warnings
        assert "cannot start" in warning and "missing" in warning


async def test_a_slow_server_is_not_waited_for_and_joins_later(tmp_path: Path):
    patience = McpTimeouts(wait_s=0.1, start_s=60, call_s=60)
    async with open_mcp_servers([rough("slow")], a_desk(tmp_path), patience=patience) as servers:
        assert not servers.tools
        assert "still starting" in servers.warnings[0]
        await until(lambda: bool(servers.tools))
        assert servers.warnings == ()
        assert (await use(servers, "mcp__slow__t")).text == "at last"


async def test_a_server_with_ten_thousand_tools_does_not_crowd_out_the_others(tmp_path: Path):
    specs = [rough("many"), rough("pages")]
    async with open_mcp_servers(specs, a_desk(tmp_path), patience=PATIENT) as servers:
        tools = servers.tools
        assert len(tools) == MAX_TOOLS
        assert {"mcp__pages__a", "mcp__pages__b", "mcp__pages__c"} <= set(tools)
        said = " ".join(servers.warnings)
        assert "more than 120 tools" in said and "120 of 123 tools are used" in said


async def test_pages_without_end_are_not_read_to_the_end(tmp_path: Path):
    async with open_mcp_servers([rough("loop")], a_desk(tmp_path), patience=PATIENT) as servers:
        assert 0 < len(servers.tools) <= MAX_TOOLS


async def test_names_that_collide_are_made_unique_and_fit_every_vendor(tmp_path: Path):
    specs = [rough("collide"), rough("collide"), rough("collide", name="strange name/é" * 9)]
    async with open_mcp_servers(specs, a_desk(tmp_path), patience=PATIENT) as servers:
        names = list(servers.tools)
        assert len(names) == 18
        assert list(servers.tools) == names
    for name in names:
        assert name.startswith("mcp__") and len(name) <= 64
        assert name.isascii() and name.replace("-", "").replace("_", "").isalnum()


async def test_what_no_vendor_takes_is_made_fit_or_left_out(tmp_path: Path):
    async with open_mcp_servers([rough("odd")], a_desk(tmp_path), patience=PATIENT) as servers:
        tools = servers.tools
        assert [name.removeprefix("mcp__odd__") for name in tools] == [
            "bare",
            "top",
            "wordy",
            "good",
        ]
        for tool in tools.values():
            schema = msgspec.json.decode(tool.schema)
            assert schema["type"] == "object" and isinstance(schema["properties"], dict)
            assert "anyOf" not in schema
        assert '"required": ["a"]' in tools["mcp__odd__top"].description
        assert len(tools["mcp__odd__wordy"].description) < 10_000
        assert tools["mcp__odd__good"].description == "good.", "the first of a name counts"
        said = " ".join(servers.warnings)
        assert "tool number 6" in said and "4 of its tools cannot be used" in said


PICTURE = {"type": "image", "mimeType": "image/png", "data": "aGk="}


@pytest.mark.parametrize(
    ("result", "failed", "text", "images"),
    [
        ({"content": []}, False, "returned nothing", 0),
        (None, True, "invalid result", 0),
        ({"content": "x"}, True, "invalid result", 0),
        ({"content": [5, {"type": "text", "text": "a"}]}, False, "cannot be read", 0),
        ({"content": [{"type": "video"}]}, False, "'video'", 0),
        ({"content": [{"type": "audio", "mimeType": "audio/wav", "data": ""}]}, False, "audio", 0),
        ({"content": [PICTURE] * 20}, False, "more than 8", 8),
        ({"content": [{**PICTURE, "data": "!"}]}, False, "invalid base64", 0),
        ({"content": [{**PICTURE, "mimeType": "image/tiff"}]}, False, "image/tiff", 0),
        ({"content": [], "structuredContent": {"a": 1}}, False, '{"a": 1}', 0),
        ({"resultType": "input_required"}, True, "input_required", 0),
        ({"resultType": "task", "taskId": "1"}, True, "task", 0),
    ],
)
async def test_every_result_has_an_outcome(
    tmp_path: Path, result: object, failed: bool, text: str, images: int
):
    spec = rough("result", json.dumps(result))
    async with open_mcp_servers([spec], a_desk(tmp_path), patience=PATIENT) as servers:
        done = await use(servers, "mcp__result__t")
        assert done.failed == failed
        assert text in done.text
        assert len(done.images) == images


async def test_a_call_without_an_answer_is_given_up(tmp_path: Path):
    patience = McpTimeouts(wait_s=60, start_s=60, call_s=0.2)
    async with open_mcp_servers([rough("mute")], a_desk(tmp_path), patience=patience) as servers:
        done = await use(servers, "mcp__mute__t")
        assert done.failed and "in time" in done.text


async def test_an_error_in_the_session_comes_out_as_itself(tmp_path: Path):
    with pytest.raises(LookupError, match="mine"):
        async with open_mcp_servers([rough("noisy")], a_desk(tmp_path), patience=PATIENT):
            raise LookupError("mine")
