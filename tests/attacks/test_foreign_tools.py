"""Tools that are not OpenCode's own, of an MCP server or a plugin, do not run unasked."""

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from opencode_workers import ASKING, KEY, METHODS, Workers, workers

from goent.agents.worker_paths import WorkerPaths
from goent.domain.ports import GuardedCall
from goent.domain.settings import PermissionRule
from goent.domain.types import Method, Preset
from goent.opencode.call_guard import access_for_guarded_call
from goent.permissions.access_rules import decide_access
from goent.permissions.permission_rules import rules_for
from goent.testing.script import Script, ScriptedToolUse, Step, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

CONFIG = """\
opencode: {profile: user, warm: false}
permissions: {rules: [{tool: clock_tick, action: allow}]}
sandbox: {writable: [%s]}
"""
# An MCP server of the tools that it is told, each of which leaves a file.
SERVER = """
import json, pathlib, sys
def tool(name):
    return {"name": name, "description": "d", "inputSchema": {"type": "object", "properties": {}}}
for line in sys.stdin:
    asked = json.loads(line)
    match asked["method"]:
        case "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": "clock", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [tool(name) for name in sys.argv[2:]]}
        case "tools/call":
            pathlib.Path(sys.argv[1], asked["params"]["name"]).touch()
            result = {"content": [{"type": "text", "text": "done"}]}
        case _:
            result = {}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
PLUGIN = """
import fs from "node:fs";
export default {
  description: "d", args: {}, execute: async () => { fs.writeFileSync("%s/own", ""); return "done"; },
};
"""
FOREIGN = ("clock_touch", "own")
NAMED = "clock_tick"


def calling(*tools: str) -> Step:
    return Step(calls=tuple(ScriptedToolUse(tool=tool) for tool in tools))


@pytest.fixture(scope="module")
async def attacked(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Workers]:
    folder = tmp_path_factory.mktemp("foreign")
    proof, server = folder / "proof", folder / "home" / "server.py"
    proof.mkdir()
    tools = folder / "home" / ".config" / "opencode" / "tool"
    tools.mkdir(parents=True)
    server.write_text(SERVER)
    (tools / "own.js").write_text(PLUGIN % proof)
    command = [sys.executable, str(server), str(proof)]
    opencode = {
        "mcp": {
            "clock": {"type": "local", "command": [*command, "touch", "tick"]},
            "plan": {"type": "local", "command": [*command, "exit"]},
        }
    }
    done = say("Done.")
    script = Script(
        providers={
            "moonshot": openai(
                case("use both", calling(*FOREIGN), done),
                case("leave the plan", calling("plan_exit"), done),
                case("use the named one", calling(NAMED), done),
                case(
                    "use it twice",
                    Step(calls=(ScriptedToolUse(tool="clock_touch", input={"say": "hi"}),)),
                    Step(calls=(ScriptedToolUse(tool="clock_touch", input={"say": "rm"}),)),
                    done,
                ),
                key=KEY,
            )
        }
    )
    async with workers(folder, script, config=CONFIG % proof, opencode=opencode) as built:
        yield built


@pytest.fixture
def proof(attacked: Workers) -> Path:
    folder = attacked.project.parent / "proof"
    for path in folder.iterdir():
        path.unlink()
    return folder


@pytest.mark.parametrize("preset", ["ask", "edit"])
@pytest.mark.parametrize("method", ASKING)
async def test_a_foreign_tool_is_asked(
    attacked: Workers, proof: Path, method: Method, preset: Preset
) -> None:
    outcome = await attacked.run(method, "use both", preset, after=len(FOREIGN))
    assert sorted(question.tool for question in outcome.asked) == sorted(FOREIGN)
    assert outcome.failure == "permission_denied"
    assert not any(proof.iterdir())


@pytest.mark.parametrize("method", ASKING)
async def test_a_foreign_tool_is_asked_by_whatever_name(
    attacked: Workers, proof: Path, method: Method
) -> None:
    outcome = await attacked.run(method, "leave the plan", "edit")
    assert [question.tool for question in outcome.asked] == ["plan_exit"]
    assert not any(proof.iterdir())


@pytest.mark.parametrize("method", ASKING)
async def test_an_always_for_a_foreign_tool_is_for_what_it_was_given(
    attacked: Workers, method: Method
) -> None:
    outcome = await attacked.run(method, "use it twice", "edit", answer="allow_always")
    assert [question.always for question in outcome.asked] == [('{"say":"hi"}',), ('{"say":"rm"}',)]


async def test_a_foreign_tool_ends_the_turn_where_nobody_can_be_asked(
    attacked: Workers, proof: Path
) -> None:
    outcome = await attacked.run("cli", "use both", "edit")
    assert outcome.failure == "permission_denied"
    assert not any(proof.iterdir())


@pytest.mark.parametrize("method", METHODS)
async def test_a_readonly_worker_uses_no_foreign_tool(
    attacked: Workers, proof: Path, method: Method
) -> None:
    outcome = await attacked.run(method, "use both", "readonly")
    assert outcome.result.state == "completed" and not outcome.asked
    assert not any(proof.iterdir())


@pytest.mark.parametrize("method", METHODS)
async def test_a_foreign_tool_is_used_by_a_worker_that_may_run_everything(
    attacked: Workers, proof: Path, method: Method
) -> None:
    outcome = await attacked.run(method, "use both", "auto")
    assert not outcome.asked
    assert sorted(path.name for path in proof.iterdir()) == ["own", "touch"]


@pytest.mark.parametrize("method", METHODS)
async def test_a_rule_that_names_a_foreign_tool_decides(
    attacked: Workers, proof: Path, method: Method
) -> None:
    outcome = await attacked.run(method, "use the named one", "readonly")
    assert outcome.result.state == "completed" and not outcome.asked
    assert [path.name for path in proof.iterdir()] == ["tick"]


@pytest.mark.parametrize(
    ("preset", "action"),
    [("readonly", "ask"), ("ask", "ask"), ("edit", "ask"), ("auto", "allow")],
)
async def test_a_search_of_the_web_is_like_a_fetch(
    preset: Preset, action: str, tmp_path: Path
) -> None:
    """OpenCode offers it with its own models only."""
    given = {"owner": "s", "session": "s", "call": "c", "directory": str(tmp_path)}
    call = GuardedCall(**given, tool="websearch", args={"query": "leak"})
    (matter,) = access_for_guarded_call(call, WorkerPaths(tmp_path))
    assert (matter.permission, matter.detail) == ("websearch", "leak")
    assert decide_access(matter, rules_for(preset, ())) == action
    named = PermissionRule(tool="websearch", action="deny")
    assert decide_access(matter, rules_for(preset, [named])) == "deny"
