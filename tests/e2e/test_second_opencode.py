"""OpenCode 2 where OpenCode 1 was: every method refuses it, before it is started."""

import json
import shutil
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from world import PLAIN, World, a_world

from goent.evals.eval_results import read_rows

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

STAND_IN = Path(__file__).parents[1] / "second_opencode.py"
CONFIG = """\
opencode: {{profile: hermetic, warm: false}}
agents:
  second: {{command: [{program}, acp]}}
sandbox: {{writable: [{program.parent}]}}  # there it would write down that it was started
"""
REMEDY = "npm install -g opencode-ai@1"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    folder = tmp_path_factory.mktemp("second")
    program = installed(folder / "bin")
    environ = {"GOENT_OPENCODE": str(program)}
    async with a_world(
        folder, PLAIN, config=CONFIG.format(program=program), environ=environ
    ) as world:
        yield world
        assert not (program.parent / "started").exists(), "it was only asked for its version"


def installed(folder: Path) -> Path:
    folder.mkdir()
    program = folder / "opencode"
    shutil.copy(STAND_IN, folder / "program.py")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {folder}/program.py "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("method", ["acp", "cli", "serve"])
async def test_a_worker_fails_in_one_sentence_with_the_remedy(world: World, method: str) -> None:
    how = ("--json", "--permissions", "auto", "--method", method)
    ended = await world.go_ent("run", *how, "say hello")
    assert ended.exit == 1, ended
    assert_refused(json.loads(ended.out)["failure"])


async def test_an_agent_that_is_opencode_is_refused_as_well(world: World) -> None:
    ended = await world.go_ent("run", "--json", "--provider", "second", "say hello")
    failure = json.loads(ended.out)["failure"]
    assert_refused(failure)
    assert "agents.second" in failure["message"]


def assert_refused(failure: dict[str, Any]) -> None:
    assert (failure["kind"], failure["retryable"]) == ("unsupported_version", False)
    message = failure["message"]
    assert "is OpenCode 2.0.0, but go-ent works with OpenCode 1 (tested with 1.18.3 to" in message
    assert REMEDY in message
    assert "\n" not in message


async def test_an_evaluation_says_the_same(world: World) -> None:
    target = {"name": "oc", "provider": "opencode", "model": "moonshot/glm-4"}
    test = {"id": "one", "input": "hello", "assertions": [{"type": "equals", "value": "x"}]}
    (world.project / ".goent" / "targets.yaml").write_text(json.dumps({"targets": [target]}))
    (world.project / "one.eval.yaml").write_text(json.dumps({"tests": [test]}))
    ended = await world.go_ent("eval", "run", "one.eval.yaml", "--json", "--out", "results")
    assert ended.exit != 0
    (row,) = read_rows(world.project / "results" / "index.jsonl").rows
    assert row.execution_status == "execution_error"
    assert "is OpenCode 2.0.0" in (row.error or "")
    assert REMEDY in (row.error or "")


async def test_the_doctor_says_so(world: World) -> None:
    ended = await world.go_ent("doctor", "--json")
    assert ended.exit == 3
    findings = {f["subject"]: f for f in json.loads(ended.out)["findings"]}
    found, agent = findings["opencode"], findings["provider second"]
    assert (found["verdict"], found["exit_code"]) == ("wrong", 3)
    assert "is OpenCode 2.0.0, but go-ent works with OpenCode 1" in found["text"]
    assert REMEDY in found["remedy"]
    assert agent["verdict"] == "note"
    assert "agents.second is OpenCode 2.0.0" in agent["text"]
