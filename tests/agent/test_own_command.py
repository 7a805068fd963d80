"""How is the command line of `go-ent acp` read, quickly and as everywhere else?"""

import pytest

from goent.acp_server.acp_command import AGENT_MODES, AGENT_TOOLS, AgentCommand, parse_acp_command
from goent.agent.tool_runner import PERMISSION_MODES
from goent.domain.types import OWN_AGENT_TOOLS


def test_what_is_repeated_to_start_quickly_is_the_same() -> None:
    assert tuple(OWN_AGENT_TOOLS) == AGENT_TOOLS
    assert AGENT_MODES == PERMISSION_MODES


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("", AgentCommand()),
        ("--model haiku", AgentCommand("haiku")),
        ("--model=other/glm-4 --mode plan", AgentCommand("other/glm-4", "plan")),
        (
            "--allowed-tools Read,Grep,mcp__a__b",
            AgentCommand(allowed_tools=frozenset({"Read", "Grep", "mcp__a__b"})),
        ),
        ("--allowed-tools=", AgentCommand(allowed_tools=frozenset())),
        ("--allowed-tools= --mode plan", AgentCommand("auto", "plan", frozenset())),
    ],
)
def test_the_plain_ways_are_read_at_once(line: str, command: AgentCommand) -> None:
    assert parse_acp_command(line.split()) == command


@pytest.mark.parametrize(
    "line",
    [
        *("--help", "-h", "--model", "--model=", "--mode yolo", "--allowed-tools Fly"),
        *("--allowed-tools", "--mode=", "--allowed-tools= --model"),
        *("--model a --model b", "--what x", "now"),
    ],
)
def test_the_rest_is_left_to_the_command_line_proper(line: str) -> None:
    assert parse_acp_command(line.split()) is None
