"""Where somebody else's configuration is in force: the user's profile, and a server that somebody else runs."""

import json
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from eval_opencode import Evaluation, Heard, a_home
from opencode import opencode_binary

from goent.evals.eval_ports import TargetError
from goent.evals.targets.opencode_target_servers import ServerSettings
from goent.evals.targets.opencode_target_settings import OpenCodeTargetSettings
from goent.evals.traces import TraceWorker

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

PASSWORD = "somebody's"
MCP_SERVER = """
import json, pathlib, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = {}
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
                  "serverInfo": {"name": "mine", "version": "1"}}
    elif asked["method"] == "tools/list":
        result = {"tools": [{"name": "wipe", "description": "w", "inputSchema": {"type": "object"}}]}
    elif asked["method"] == "tools/call":
        pathlib.Path(sys.argv[1]).touch()
        result = {"content": [{"type": "text", "text": "wiped"}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


@pytest.fixture(scope="module")
async def lax(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Evaluation]:
    """A user whose OpenCode has an MCP server, and subagents that ask for nothing."""
    folder = tmp_path_factory.mktemp("evals")
    async with a_home(folder) as home:
        server = folder / "home" / "mcp.py"
        server.write_text(MCP_SERVER)
        config = folder / "home" / ".config" / "opencode" / "opencode.json"
        command = [sys.executable, str(server), str(wiped(home))]
        more = {
            "mcp": {"mine": {"type": "local", "command": command}},
            "agent": {"general": {"permission": {"edit": "allow", "bash": "allow"}}},
        }
        config.write_text(json.dumps({**json.loads(config.read_text()), **more}))
        (home.project / ".goent" / "config.yaml").write_text("{}\n")
        async with home.running():
            yield home


def wiped(built: Evaluation) -> Path:
    """What the MCP server would make: where OpenCode can write in its sandbox."""
    return Path(built.environ["HOME"]) / ".local" / "share" / "opencode" / "wiped"


async def refused(built: Evaluation, cwd: Path, text: str, **settings: object) -> str:
    """The permission that an attempt fails for; it is also written down."""
    heard = Heard()
    with pytest.raises(TargetError, match=r"permission '\w+' was refused") as caught:
        await built.attempt(cwd, text, heard, **settings)
    assert not list(cwd.iterdir())
    assert not wiped(built).exists()
    (found,) = re.findall(r"permission '(\w+)'", str(caught.value))
    assert [decision.permission for decision in heard.decisions] == [found]
    return found


async def test_the_users_opencode_has_no_say_unless_the_target_says_so(
    lax: Evaluation, cwd: Path
) -> None:
    trace = await lax.attempt(cwd, "say hello", model=None)
    first = lax.servers.context.settings().providers[0]
    assert trace.by == TraceWorker(
        provider=first.name, backend=first.backend, model=first.model, method="serve"
    )
    request = lax.models.calls[-1].request
    assert request
    assert "task" in request.tools
    assert "mine_wipe" not in request.tools
    context, gate = lax.servers.context, lax.servers.accounts.gate
    mark = {
        ServerSettings(settings=told, backend="moonshot").fingerprint(context, gate, ())
        for told in TOLD
    }
    assert len(mark) == 2


TOLD = (
    OpenCodeTargetSettings(),
    OpenCodeTargetSettings(profile="hermetic"),
    OpenCodeTargetSettings(profile="user"),
)


@pytest.mark.spec("E17")
async def test_in_the_users_profile_mcp_tools_and_subagents_are_asked_for(
    lax: Evaluation, cwd: Path
) -> None:
    assert await refused(lax, cwd, "use the tool", profile="user") == "mine_wipe"
    assert await refused(lax, cwd, "delegate writing", profile="user") == "task"
    lenient = {"profile": "user", "permission": {"task": "allow"}}
    assert await refused(lax, cwd, "delegate writing", **lenient) == "edit"


@asynccontextmanager
async def plain_server(home: Evaluation) -> AsyncGenerator[str]:
    """`opencode serve` as a user starts it."""
    env = {**home.environ, "OPENCODE_SERVER_PASSWORD": PASSWORD}
    command = [str(opencode_binary()), "serve", "--port=0"]
    async with await anyio.open_process(command, cwd=home.project, env=env, stderr=None) as process:
        try:
            assert process.stdout
            said = ""
            with anyio.fail_after(60):
                while not (found := re.search(r"listening on (http://\S+)\n", said)):
                    said += (await process.stdout.receive()).decode()
            yield found[1]
        finally:
            process.kill()


@pytest.mark.spec("E17")
@pytest.mark.spec("E18")
async def test_on_somebody_elses_server_mcp_tools_and_subagents_are_asked_for(
    lax: Evaluation, cwd: Path
) -> None:
    async with plain_server(lax) as url:
        there: dict[str, object] = {"base_url": url, "env": {"OPENCODE_SERVER_PASSWORD": PASSWORD}}
        assert await refused(lax, cwd, "delegate writing", **there) == "task"
        assert await refused(lax, cwd, "use the tool", **there) == "mine_wipe"
        (lax.project.parent / "note.md").write_text("remember the milk\n")
        allowing = {**there, "permission": {"task": "allow"}}
        assert await refused(lax, cwd, "delegate reading", **allowing) == "external_directory"
        trace = await lax.attempt(cwd, "delegate writing", None, **there, permission_policy="once")
        assert [decision.permission for decision in trace.permissions] == ["task"]
        assert (cwd / "made.txt").exists()
        assert [call.tool for depth, call in trace.all_calls if depth] == ["write", "read", "bash"]
