"""The real OpenCode does what the script says, in both dialects."""

from pathlib import Path

import pytest
from opencode import LIGHT, opencode_binary

from goent.domain.types import Usage
from goent.proc.child_process import run_command
from goent.testing.hermetic_opencode import hermetic_env, opencode_config
from goent.testing.script import Script, anthropic, call, case, openai, say
from goent.testing.scripted_server import ScriptedModels

HELLO = case(
    "write hello",
    call("write", filePath="{cwd}/hello.txt", content="hi from {model}\n").having(
        say="I write the file.",
        think="A greeting is wanted.",
        usage=Usage(input=800, output=90, cache_read=200, reasoning=10),
        chunk=4,
    ),
    say("Done."),
)
SCRIPT = Script(
    providers={
        "moonshot": openai(HELLO, key="sk-moon"),
        "claude": anthropic(HELLO, key="sk-claude"),
    }
)


@pytest.mark.anyio
@pytest.mark.timeout(120)
@pytest.mark.parametrize("model", ["moonshot/glm-4", "claude/claude-x"])
async def test_opencode_writes_a_file_as_scripted(tmp_path: Path, model: str) -> None:
    work = tmp_path / "work"
    work.mkdir()
    config = tmp_path / "opencode.json"
    env = hermetic_env(tmp_path / "home") | LIGHT
    env |= {"OPENCODE_CONFIG": str(config), "PWD": str(work)}
    command = [str(opencode_binary()), "run", "--format", "json", "-m", model]
    async with ScriptedModels(SCRIPT) as server:
        config.write_text(opencode_config(server))
        done = await run_command(
            command, cwd=work, env=env, timeout=100, stdin=b"write hello, please"
        )
        first, second = server.calls
    assert done.exit == 0, done.errors
    assert (work / "hello.txt").read_text() == f"hi from {model.partition('/')[2]}\n"
    assert "Done." in done.output
    assert (first.step, second.step) == (0, 1)
    assert first.session and first.session == second.session
    assert first.request and first.request.cwd == str(work)
    assert first.request.stream and "write" in first.request.tools
    assert second.request and second.request.messages[-1].role == "tool"
    assert server.billed(session=first.session).input == 900
