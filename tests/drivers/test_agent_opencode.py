"""The real `opencode acp`, run by its command line as any other agent, with a scripted model."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from agent_stage import Stage, ask, during
from msgspec.structs import replace
from opencode import LIGHT, opencode_binary

from goent.domain.settings import AgentSettings
from goent.domain.types import Usage
from goent.testing.hermetic_opencode import hermetic_env, opencode_config
from goent.testing.script import Script, call, case, openai, say
from goent.testing.scripted_server import ScriptedModels

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

SPENT = Usage(input=1000, output=100)
SCRIPT = Script(
    providers={
        "moonshot": openai(
            case(
                "write hello",
                call("write", filePath="{cwd}/hello.txt", content="hi\n").having(usage=SPENT),
                say("Written.", usage=SPENT),
            ),
            case("run it", call("bash", command="echo ran", description="x"), say("It ran.")),
            case("which model", say("{model}", usage=SPENT)),
            models=("glm-4", "kimi-k2"),
            key="sk-its-own-key",
        )
    }
)
ASKING = '"permission": {"edit": "ask", "bash": "ask"}'


@asynccontextmanager
async def by_opencode(folder: Path) -> AsyncGenerator[Stage]:
    async with ScriptedModels(SCRIPT) as models:
        stage = Stage(folder)
        home = folder / "home"
        env = hermetic_env(home)
        config = opencode_config(models).replace('"permission": "allow"', ASKING)
        (home / ".config" / "opencode" / "opencode.json").write_text(config)
        switches = [f"{name}={value}" for name, value in env.items() if name.startswith("OPENC")]
        command = ("env", *switches, str(opencode_binary()), "acp")
        stage.settings = replace(stage.settings, agents={"actor": AgentSettings(command=command)})
        stage.environ = {**env, **LIGHT}
        async with stage.running():
            yield stage


async def test_opencode_is_an_agent_like_any_other(tmp_path: Path) -> None:
    async with by_opencode(tmp_path) as stage:
        async with stage.open(model="moonshot/kimi-k2", permissions="edit") as session:
            heard = await ask(session, "which model")
            assert heard.text == "kimi-k2"
            token = session.token

            heard = await ask(session, "write hello")
            assert heard.text == "Written."
            assert (stage.project / "hello.txt").read_text() == "hi\n"
            assert [c.path for tool in heard.ended_tools for c in tool.changes] == ["hello.txt"]
            assert not heard.questions, "the worker's rules have answered"
            assert heard.usage and {report.source for report in heard.usage} == {"estimate"}

            async with during(session, "run it") as turn:
                question = await turn.heard.question()
                assert (question.tool, question.detail) == ("bash", "echo ran")
                await session.answer(question.id, "allow_once")
            assert (turn.reason, turn.heard.text) == ("end", "It ran.")
            (tool,) = turn.heard.ended_tools
            assert tool.command and tool.command.command == "echo ran"

        async with stage.open(model="moonshot/glm-4", resume=token) as session:
            assert session.token == token
            assert (await ask(session, "which model")).text == "glm-4"
