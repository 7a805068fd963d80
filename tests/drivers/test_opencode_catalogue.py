"""What OpenCode is told of models: as much as it can use, and of that nothing else."""

import json
import os
from pathlib import Path

import pytest
from opencode import LIGHT, opencode_binary
from sandboxed import a_sandbox

from goent.agents.opencode_program import find_opencode
from goent.opencode.acp_session import AcpProcess
from goent.opencode.bundled_models import (
    KEEP_S,
    VARIABLE,
    BundledModels,
    UnreadableLiteral,
    literal_as_json,
)
from goent.opencode.process_launch import OpenCodeLaunch
from goent.proc.process_table import new_mark, new_owner
from goent.testing.hermetic_opencode import hermetic_env

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

KNOWN = ("anthropic", "openai", "google", "opencode", "moonshotai")
KEYS = {
    "ANTHROPIC_API_KEY": "a",
    "OPENAI_API_KEY": "b",
    "GOOGLE_GENERATIVE_AI_API_KEY": "c",
    "MOONSHOT_API_KEY": "d",
}


@pytest.fixture
def program() -> Path:
    return find_opencode(str(opencode_binary()), os.environ)


def catalogue(folder: Path, *backends: str) -> BundledModels:
    return BundledModels(backends=backends, folder=folder / "models")


def written(variables: dict[str, str]) -> dict[str, dict[str, object]]:
    return json.loads(Path(variables[VARIABLE]).read_text())


async def offered(
    program: Path, folder: Path, catalogue: BundledModels | None
) -> dict[str, object]:
    """What OpenCode itself says of its providers."""
    config = {"enabled_providers": [*KNOWN, "moonshot"], "autoupdate": False}
    home = hermetic_env(folder / "home") | LIGHT
    env = {**home, **KEYS, "OPENCODE_CONFIG_CONTENT": json.dumps(config), "PWD": str(folder)}
    launch = OpenCodeLaunch(
        program=program,
        cwd=folder,
        env=env,
        password="goent_test",
        token="t",
        fingerprint="f",
        start_timeout=60,
        sandbox=a_sandbox(folder / "home"),
        catalogue=catalogue,
    )
    async with AcpProcess.running(launch, new_mark(new_owner("drivers"))) as process:
        return (await process.client.http.get("/config/providers", timeout=60)).json()


async def test_opencode_knows_the_same_of_what_it_can_use(program: Path, tmp_path: Path) -> None:
    whole = await offered(program, tmp_path, None)
    assert "claude" in json.dumps(whole)
    narrow = catalogue(tmp_path, *KNOWN, "moonshot")
    assert await offered(program, tmp_path, narrow) == whole
    (file,) = narrow.folder.iterdir()
    assert set(json.loads(file.read_text())) == set(KNOWN), "or nothing was narrowed"


async def test_the_list_that_the_user_has_fetched_comes_first(
    program: Path, tmp_path: Path
) -> None:
    fetched = tmp_path / "home/.cache/opencode/models.json"
    narrow = catalogue(tmp_path, "anthropic", "moonshot")
    built_in = written(narrow.variables(program, hermetic_env(tmp_path / "home")))["anthropic"]
    fetched.parent.mkdir()
    theirs = {"anthropic": {**built_in, "name": "Claude & Co"}, "other": built_in}
    fetched.write_text(json.dumps(theirs))
    whole = await offered(program, tmp_path, None)
    assert "Claude & Co" in json.dumps(whole)
    assert await offered(program, tmp_path, narrow) == whole
    now = written(narrow.variables(program, hermetic_env(tmp_path / "home")))
    assert now == {"anthropic": theirs["anthropic"]}


def test_a_fetched_list_that_is_broken_is_left_to_opencode(program: Path, tmp_path: Path) -> None:
    fetched = tmp_path / ".cache/opencode/models.json"
    fetched.parent.mkdir(parents=True)
    narrow = catalogue(tmp_path, "anthropic")
    for broken in ("", "[]", "null", '{"anthropic": {'):
        fetched.write_text(broken)
        assert narrow.variables(program, {"HOME": str(tmp_path)}) == {}


def test_backends_that_no_catalogue_has_leave_nothing_of_it(program: Path, tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path)}
    assert written(catalogue(tmp_path, "moonshot", "goent-warm").variables(program, env)) == {}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#!/bin/sh\nexec opencode\n",
        '{a:{id:"a",env:[]}}',
        '{id:"anthropic",env:[]},a:{id:"a",env:[],f(){}}',
        '{id:"anthropic",env:[]},{id:"a",env:[]},{id:"a",env:[]}',
    ],
)
def test_a_program_that_is_built_otherwise_keeps_its_catalogue(tmp_path: Path, text: str) -> None:
    odd = tmp_path / "opencode"
    odd.write_text(text)
    assert catalogue(tmp_path, "a").variables(odd, {"HOME": str(tmp_path)}) == {}
    assert catalogue(tmp_path, 'a"b').variables(odd, {"HOME": str(tmp_path)}) == {}


def test_a_program_is_read_once_and_again_when_it_changed(tmp_path: Path) -> None:
    program, env = tmp_path / "opencode", {"HOME": str(tmp_path)}
    narrow = catalogue(tmp_path, "a")
    entry = '{id:"anthropic",env:[]},a:{id:"a",env:[],n:%s}'
    program.write_text(entry % "1")
    first = narrow.variables(program, env)
    Path(first[VARIABLE]).write_text('{"a": {"n": 5}}')
    assert written(narrow.variables(program, env))["a"]["n"] == 5
    forgotten = Path(first[VARIABLE]).stat().st_mtime - KEEP_S - 60
    os.utime(first[VARIABLE], (forgotten, forgotten))
    program.write_text(entry % "22")
    assert written(narrow.variables(program, env)) == {"a": {"id": "a", "env": [], "n": 22}}
    assert not Path(first[VARIABLE]).exists()


def test_what_cannot_be_written_is_no_reason_to_fail(tmp_path: Path) -> None:
    program = tmp_path / "opencode"
    program.write_text('{id:"anthropic",env:[]}')
    (tmp_path / "models").write_text("in the way")
    assert catalogue(tmp_path, "a").variables(program, {"HOME": str(tmp_path)}) == {}


def test_a_bundlers_literal_is_turned_back_into_json() -> None:
    source = rb"""{a:!0,"b-c":[!1,null,-1.5e-7,{}],2:'"it\'s"',d:"\xe9\\x\u2013\"'",e:""},rest"""
    assert json.loads(literal_as_json(source)) == {
        "a": True,
        "b-c": [False, None, -1.5e-7, {}],
        "2": '"it\'s"',
        "d": "\xe9\\x\u2013\"'",
        "e": "",
    }


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"1",
        b"[1]",
        b"{a:1",
        b"{a:b}",
        b"{a:`x`}",
        b"{a:.5}",
        b"{a:1 }",
        b"{a:0x10}",
        b"{a:void 0}",
        b"{...a}",
        b"{a:1,}",
        b"{a:1]",
        b'{a:"\xc3\xa9"}',
        b'{a:"\\v"}',
        b"{a:1+1}",
    ],
)
def test_anything_else_is_refused(source: bytes) -> None:
    with pytest.raises(UnreadableLiteral):
        literal_as_json(source)
