"""The script as a file, the server as a process, and the configuration for OpenCode."""

import os
import signal
import sys
from pathlib import Path

import anyio
import httpx2
import msgspec
import pytest
from anyio.streams.buffered import BufferedByteReceiveStream
from vendor_talk import ask

from goent.domain.errors import ConfigError
from goent.domain.types import Usage
from goent.proc.child_process import run_command, supervised
from goent.proc.process_table import new_mark, new_owner
from goent.testing.hermetic_opencode import hermetic_env, opencode_config
from goent.testing.script import Script, load_script, openai

SCRIPT = """
providers:
  moonshot:
    key: sk-demo
    models: [glm-4, kimi-k2]
    cases:
      - when: write hello
        steps:
          - say: I write the file.
            call: {tool: write, input: {filePath: "{cwd}/hello.txt", content: "hi\\n"}}
            usage: {input: 1000, output: 100, cache_read: 200, reasoning: 10}
            pace: 0.02
            chunk: 8
          - say: Done.
            stop: length
      - steps:
          - fault: {status: 429, retry_after: 1, times: 2}
            say: at last
          - fault: {kind: cut, after: 3}
  claude:
    dialect: anthropic
    cases: []
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "script.yaml"
    path.write_text(SCRIPT)
    return path


def test_a_script_is_read_from_yaml(path: Path) -> None:
    script = load_script(path)
    moonshot = script.providers["moonshot"]
    writing, rest = moonshot.cases
    assert (moonshot.dialect, moonshot.key, moonshot.models[1]) == ("openai", "sk-demo", "kimi-k2")
    assert writing.steps[0].usage == Usage(input=1000, output=100, cache_read=200, reasoning=10)
    assert [step.finish for step in writing.steps] == ["tool_calls", "length"]
    assert rest.when is None and rest.steps[0].fault and rest.steps[0].fault.retry_after == 1
    assert script.providers["claude"].dialect == "anthropic"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("providers: {a: {casess: []}}", "providers.a.casess: unknown key; did you mean 'cases'"),
        (
            "providers: {a: {cases: [{steps: []}]}}",
            r"cases\[0\]\.steps: must have at least 1 entry",
        ),
        ("providers: {a: {cases: [{steps: [{fault: {kind: flood}}]}]}}", "flood"),
        ("providers: [", "is not a script"),
    ],
)
def test_a_mistake_in_a_script_names_file_and_place(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint) as raised:
        load_script(path)
    assert str(path) in str(raised.value)


def test_a_missing_script_is_a_mistake_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml.*No such file"):
        load_script(tmp_path / "none.yaml")


class Address(msgspec.Struct):
    url: str
    providers: dict[str, str]


class Bill(msgspec.Struct):
    calls: int
    billed: dict[str, Usage]


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["eof", "sigterm"])
async def test_the_server_runs_as_a_process_and_ends_with_its_parent(path: Path, how: str) -> None:
    command = [sys.executable, "-m", "goent.testing", str(path)]
    mark = new_mark(new_owner("test"))
    async with supervised(command, cwd=path.parent, env=os.environ, mark=mark) as process:
        lines = BufferedByteReceiveStream(process.stdout)
        with anyio.fail_after(20):
            address = msgspec.json.decode(await lines.receive_until(b"\n", 4096), type=Address)
            async with httpx2.AsyncClient() as client:
                reply = await client.post(
                    f"{address.providers['moonshot']}/chat/completions",
                    json=ask("x"),
                    headers={"authorization": "Bearer sk-demo"},
                )
            if how == "eof":
                await process.stdin.aclose()
            else:
                os.kill(process.pid, signal.SIGTERM)
            bill = msgspec.json.decode(await lines.receive_until(b"\n", 4096), type=Bill)
            assert await process.wait() == 0
    assert reply.status_code == 429
    assert (bill.calls, bill.billed["moonshot"]) == (1, Usage())


@pytest.mark.anyio
async def test_a_bad_script_ends_the_process_with_the_code_for_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "goent.testing", "none.yaml"]
    done = await run_command(command, cwd=tmp_path, env=os.environ, timeout=20)
    assert done.exit == 2 and "none.yaml" in done.errors


class Entry(msgspec.Struct):
    npm: str
    options: dict[str, str]
    models: dict[str, dict[str, object]]


class Config(msgspec.Struct):
    model: str
    agent: dict[str, dict[str, bool]]
    enabled_providers: list[str]
    provider: dict[str, Entry]


def test_opencode_is_told_of_the_scripts_providers_only(path: Path) -> None:
    text = opencode_config(
        load_script(path), url="http://127.0.0.1:1", keys={"claude": "{env:CLAUDE_KEY}"}
    )
    config = msgspec.json.decode(text, type=Config)
    assert config.model == "moonshot/glm-4"
    assert config.enabled_providers == ["moonshot", "claude"]
    assert config.agent == {"title": {"disable": True}}
    moonshot, claude = config.provider["moonshot"], config.provider["claude"]
    assert moonshot.npm == "@ai-sdk/openai-compatible"
    assert moonshot.options == {"baseURL": "http://127.0.0.1:1/moonshot/v1", "apiKey": "sk-demo"}
    assert moonshot.models["kimi-k2"]["limit"] == {"context": 128_000, "output": 8192}
    assert claude.npm == "@ai-sdk/anthropic"
    assert claude.options["apiKey"] == "{env:CLAUDE_KEY}"


def test_a_script_alone_has_no_address() -> None:
    with pytest.raises(ValueError, match="url="):
        opencode_config(Script(providers={"a": openai()}))


def test_a_hermetic_environment_lies_below_its_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    env = hermetic_env(tmp_path)
    assert "OPENAI_API_KEY" not in env
    private = [value for name, value in env.items() if name.startswith(("XDG_", "HOME", "TMP"))]
    assert len(private) == 6 and all(Path(v).is_relative_to(tmp_path) for v in private)
    assert all(Path(value).is_dir() for value in private)
