"""`go-ent eval run`, with every kind of target beside the others: the real OpenCode, go-ent's own
workers, a command, a fixed answer and a recording."""

import json
from collections.abc import AsyncGenerator
from pathlib import Path

import msgspec
import pytest
import yaml
from world import World, a_world

from goent.evals.eval_results import Row, latest_rows, read_rows
from goent.evals.traces import Trace
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

SCRIPT = Script(
    providers={
        "moonshot": openai(
            case(
                "change it",
                call("read", filePath="{cwd}/greeting.txt"),
                call("write", filePath="{cwd}/greeting.txt", content="goodbye\n"),
                say("It says goodbye now."),
            ),
            case(None, say("It says goodbye now.")),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)
TARGETS = [
    {
        "name": "opencode",
        "provider": "opencode",
        "model": "moonshot/glm-4",
        "permission_policy": "once",
    },
    {
        "name": "worker",
        "provider": "goent",
        "subprovider": "moonshot",
        "method": "acp",
        "permissions": "auto",
    },
    {"name": "model", "provider": "goent", "subprovider": "moonshot", "method": "api"},
    {"name": "command", "provider": "cli", "command": "echo goodbye > {OUTPUT_FILE}"},
    {"name": "fixed", "provider": "mock", "response": "goodbye"},
    {"name": "recorded", "provider": "replay", "fixtures": "recorded.jsonl"},
]
CHANGED = {
    "type": "tool-trajectory",
    "mode": "in_order",
    "expected": [{"tool": "read"}, {"tool": "write", "status": "ok"}],
}


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("evals"), SCRIPT) as world:
        goent = world.project / ".goent"
        (goent / "targets.yaml").write_text(yaml.safe_dump({"targets": TARGETS}))
        (world.project / "recorded.jsonl").write_text(
            json.dumps({"test_id": "says", "text": "goodbye"})
        )
        template = world.project / "template"
        template.mkdir()
        (template / "greeting.txt").write_text("hello\n")
        yield world


def suite(world: World, name: str, *tests: object) -> str:
    path = world.project / f"{name}.eval.yaml"
    path.write_text(yaml.safe_dump({"name": name, "tests": list(tests)}))
    return str(path)


def rows(out: Path) -> dict[str, Row]:
    return {row.target: row for row in latest_rows(read_rows(out / "index.jsonl").rows)}


@pytest.mark.spec("E20")
@pytest.mark.spec("E01")
async def test_every_kind_of_target_stands_beside_the_others(world: World) -> None:
    says = {
        "id": "says",
        "input": "say goodbye",
        "assertions": [{"type": "contains", "value": "goodbye"}],
    }
    out = world.project / "out-kinds"
    names = [str(target["name"]) for target in TARGETS]

    ended = await world.go_ent(
        "eval",
        "run",
        suite(world, "kinds", says),
        "--out",
        str(out),
        *(part for name in names for part in ("--target", name)),
        seconds=200,
    )

    assert ended.exit == 0, ended.err
    told = rows(out)
    assert sorted(told) == sorted(names)
    assert {row.execution_status for row in told.values()} == {"ok"}
    assert told["opencode"].token_usage
    assert told["worker"].token_usage


@pytest.mark.spec("E02")
@pytest.mark.spec("E05")
async def test_what_an_agent_changed_is_graded_and_kept_apart(world: World) -> None:
    look = world.project / "look.sh"
    look.write_text('cat >/dev/null; grep goodbye "$GOENT_WORKSPACE_PATH/greeting.txt"\n')
    changes = {
        "id": "changes",
        "input": "change it",
        "workspace": {"template": "template"},
        "assertions": [CHANGED, {"type": "code-grader", "command": ["sh", "look.sh"]}],
    }
    path = suite(world, "changing", changes)
    out = world.project / "out-changes"

    ended = await world.go_ent(
        "eval",
        "run",
        path,
        "--out",
        str(out),
        "--target",
        "opencode",
        "--target",
        "worker",
        "--trials",
        "2",
        seconds=200,
    )

    assert ended.exit == 0, ended.err + ended.out
    assert (world.project / "template/greeting.txt").read_text() == "hello\n"
    for row in latest_rows(read_rows(out / "index.jsonl").rows):
        trace = msgspec.json.decode((out / row.trace_path).read_bytes(), type=Trace)
        assert [one.tool for one in trace.calls] == ["read", "write"]
        assert "-hello\n+goodbye\n" in trace.file_changes
