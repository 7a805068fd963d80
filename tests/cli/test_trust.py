"""`go-ent trust`: what is shown, asked, remembered and taken back."""

import json
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from desk import Person
from world import PLAIN, World, a_cold_world, a_world

from goent.cli.main import run_cli

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

AGENT = "agents: {helper: {command: [./helper.sh, --acp]}}\nopencode: {profile: hermetic}\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".goent").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "GOENT_TRUST"):
        monkeypatch.delenv(name, raising=False)
    return folder


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    run_cli([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_it_is_shown_and_said_yes_to(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["trust"]) == 0
    assert "nothing here needs your trust" in capsys.readouterr().out
    (project / ".goent/config.yaml").write_text(AGENT)
    assert run_cli(["trust"]) == 1, "nobody is there who could say yes"
    said = capsys.readouterr().out
    assert "agent 'helper' runs `./helper.sh --acp`" in said
    assert run_cli(["trust", "--yes"]) == 0
    assert run_cli(["trust"]) == 0
    (listed,) = told(capsys, "trust", "--list")["projects"]
    assert listed["project"] == str(project)
    assert listed["acts"] == [".goent/config.yaml: agents.helper"]


def test_a_change_is_shown_beside_what_was(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".goent/config.yaml").write_text(AGENT)
    run_cli(["trust", "--yes"])
    capsys.readouterr()
    (project / ".goent/config.yaml").write_text(AGENT.replace("helper.sh", "evil.sh"))
    assert run_cli(["trust"]) == 1
    said = capsys.readouterr().out
    assert "changed  .goent/config.yaml: agents.helper" in said
    assert "before: agent 'helper' runs `./helper.sh --acp`" in said


def test_it_can_be_taken_back(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / ".goent/config.yaml").write_text(AGENT)
    run_cli(["trust", "--yes"])
    assert told(capsys, "trust", "--revoke") == {"project": str(project), "revoked": True}
    assert told(capsys, "trust", "--revoke") == {"project": str(project), "revoked": False}
    assert told(capsys, "trust")["trusted"] is False


def test_a_repositorys_words_draw_no_lines(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".goent/config.yaml").write_text(
        'agents: {a: {command: ["x\\nnothing waits\\u001b[2K\\u202e", y]}}\n'
    )
    assert run_cli(["trust"]) == 1
    said = capsys.readouterr().out
    assert "x\\nnothing waits" in said
    assert "\x1b" not in said
    assert "\u202e" not in said


def test_init_trusts_what_it_wrote_and_nothing_that_was_there(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".goent/config.yaml").write_text(AGENT)
    assert run_cli(["init"]) == 0
    told_of = told(capsys, "trust")
    assert told_of["trusted"] is False
    (listed,) = told(capsys, "trust", "--list")["projects"]
    assert listed["acts"] == []


def test_what_is_not_there_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["trust", "nowhere"]) == 2
    assert str(project / "nowhere") in capsys.readouterr().err


def test_a_worker_is_refused(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GOENT_PROC", "x.1.2.3")
    for arguments in (["--yes"], ["--revoke"], [str(project)]):
        assert run_cli(["trust", *arguments]) == 2
        assert "workers cannot change what is trusted" in capsys.readouterr().err


def at_the_terminal(world: World, *keys: str) -> str:
    """`go-ent run`, with a line typed for each question about trust."""
    home = {
        "XDG_CONFIG_HOME": f"{world.home}/.config",
        "XDG_STATE_HOME": f"{world.home}/.local/state",
    }
    asks = ("run", "hello", "--method", "api", "--provider", "moonshot")
    person = Person(*asks, cwd=world.project, env={**world.env, **home})
    for key in keys:
        person.sees("[y/N]")
        person.types(f"{key}\n")
    assert person.leaves() == 0, person.seen
    return person.seen


async def test_a_person_at_the_terminal_is_asked_once(tmp_path: Path) -> None:
    async with a_world(tmp_path, PLAIN) as world:
        config = world.project / ".goent/config.yaml"
        config.write_text(AGENT)
        refused = await anyio.to_thread.run_sync(at_the_terminal, world, "n")
        assert "agent 'helper'" in refused
        again = await anyio.to_thread.run_sync(at_the_terminal, world)
        assert "[y/N]" not in again, "a no is remembered"
        config.write_text(AGENT.replace("--acp", "--stdio"))
        agreed = await anyio.to_thread.run_sync(at_the_terminal, world, "y")
        assert "`./helper.sh --stdio`" in agreed
        assert "[y/N]" not in await anyio.to_thread.run_sync(at_the_terminal, world)


async def test_nobody_else_is_kept_waiting(tmp_path: Path) -> None:
    async with a_cold_world(tmp_path) as world:
        (world.project / ".goent/config.yaml").write_text(AGENT)
        ended = await world.go_ent("run", "hello", "--detach")
        assert ended.exit == 0
        assert "ignored until you trust it: .goent/config.yaml: agents.helper" in ended.err
        assert "go-ent trust" in ended.err
        assert os.path.realpath(world.project) not in (await world.go_ent("trust", "--list")).err
