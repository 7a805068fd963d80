"""Which OpenCode is taken and which is refused, also when it is replaced or says one thing and is another."""

import os
import shutil
import sqlite3
import sys
from pathlib import Path

import anyio
import pytest
from agent_stage import Stage as AgentStage
from msgspec.structs import replace
from opencode import opencode_binary
from opencode_script import SCRIPT
from opencode_stage import PATIENCE, Heard, processes, stage
from serve_stage import serve_stage

from goent.agents.opencode_program import (
    check_agent,
    check_version,
    find_opencode,
    is_newer_than_tested,
    platform_packages,
    read_version,
)
from goent.domain.errors import OpenCodeMissing, UnsupportedVersion, WorkerCrashed
from goent.domain.settings import AgentSettings, OpenCodeSettings
from goent.domain.types import Prompt
from goent.opencode.opencode_process import free_port
from goent.proc.child_process import supervised
from goent.proc.process_table import new_mark, new_owner
from goent.testing.script import Script, case, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

STAND_IN = Path(__file__).parents[1] / "second_opencode.py"
ENV = {"PATH": os.environ["PATH"]}
REMEDY = "npm install -g opencode-ai@1"


def script(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)
    return path


def stand_in(folder: Path) -> str:
    """The command of a program that stands in for OpenCode 2, and notes there that it was started."""
    shutil.copy(STAND_IN, folder / "program.py")
    return f"exec {sys.executable} {folder / 'program.py'}"


@pytest.mark.parametrize(
    "said", ["1.18.3", "1.18.33\n", "v1.18.34", "using node 20.1.1\n1.18.20\n"]
)
def test_what_was_tested_is_taken(said: str) -> None:
    check_version(said, "it")


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("opencode v2.0.0", "is OpenCode 2.0.0, but go-ent works with OpenCode 1"),
        ("2.2.0-beta.1", "is OpenCode 2.2.0-beta.1, but"),
        ("3.0.0", "is OpenCode 3.0.0, but"),
        ("12.1.0", "is OpenCode 12.1.0, but"),
        ("0.0.0-v2-202608190101", "is OpenCode 0.0.0-v2-202608190101, but"),
        ("1.17.19", "is OpenCode 1.17.19, but go-ent needs 1.18.3 or newer"),
        ("0.5.29", "go-ent needs 1.18.3 or newer"),
        ("local", "does not report its version of OpenCode"),
        ("", "does not report its version of OpenCode"),
    ],
)
def test_anything_else_is_refused_in_one_sentence_with_the_remedy(said: str, why: str) -> None:
    with pytest.raises(UnsupportedVersion) as refused:
        check_version(said, "it")
    assert str(refused.value).startswith(f"it {why}" if why.startswith(("is", "does")) else "it is")
    assert why in str(refused.value)
    assert REMEDY in str(refused.value)
    assert not refused.value.retryable


def test_an_agent_may_be_an_older_one_but_no_second() -> None:
    check_agent("0.5.29", "mine")
    with pytest.raises(UnsupportedVersion, match=r"agents\.mine is OpenCode 2\.0\.0"):
        check_agent("opencode v2.0.0", "mine")


def test_a_version_newer_than_the_tested_ones_is_recognised() -> None:
    newer = {
        said: is_newer_than_tested(check_version(said, "it")) for said in ("1.18.33", "1.19.0")
    }
    assert newer == {"1.18.33": False, "1.19.0": True}


async def test_the_real_program_is_taken() -> None:
    said = await read_version(opencode_binary(), dict(os.environ), patience=PATIENCE)
    assert not is_newer_than_tested(check_version(said, "it"))


async def test_a_program_is_asked_once_until_another_file_is_in_its_place(tmp_path: Path) -> None:
    """Any two programs do that are no scripts and tell a version."""
    program = tmp_path / "opencode"
    shutil.copy(os.path.realpath("/bin/bash"), program)
    said = await read_version(program, ENV, patience=PATIENCE)
    assert "bash" in said
    program.chmod(0o644)  # it cannot be run now
    assert await read_version(program, ENV, patience=PATIENCE) == said
    os.utime(program, (1, 1))  # as another file would have it
    with pytest.raises(WorkerCrashed, match="cannot start"):
        await read_version(program, ENV, patience=PATIENCE)


async def test_a_wrapper_is_asked_each_time_for_it_may_lead_elsewhere(tmp_path: Path) -> None:
    wrapper, version = (
        script(tmp_path / "opencode", f"cat {tmp_path}/version"),
        tmp_path / "version",
    )
    for said in ("1.18.33", "2.0.0"):
        version.write_text(said)
        assert await read_version(wrapper, ENV, patience=PATIENCE) == said


async def test_a_program_that_is_replaced_while_go_ent_runs_is_noticed_and_turns_finish(
    tmp_path: Path,
) -> None:
    program = script(tmp_path / "opencode", f'exec {opencode_binary()} "$@"')
    moonshot = SCRIPT.providers["moonshot"]
    gated = case("wait for the new one", say("I waited.").having(gate="the new one"))
    moonshot = replace(moonshot, cases=(gated, *moonshot.cases))
    async with stage(
        Script(providers={**SCRIPT.providers, "moonshot": moonshot}), tmp_path
    ) as built:
        built.use(opencode=OpenCodeSettings(command=str(program), profile="hermetic"))
        project, heard = built.settings.project, Heard()
        async with (
            built.driver.open(built.spec(project, dedicated=True)) as session,
            anyio.create_task_group() as tasks,
        ):
            working = processes("acp")
            tasks.start_soon(session.prompt, Prompt(text="wait for the new one"), heard.emit)
            await built.models.at_gate("the new one", timeout=PATIENCE)
            script(program, f'{stand_in(project)} "$@"')
            with pytest.raises(UnsupportedVersion, match=r"is OpenCode 2\.0\.0"):
                async with built.driver.open(built.spec(project, dedicated=True)):
                    pytest.fail("it was started")
            assert working and working == processes("acp")
            built.models.open_gate("the new one")
        assert (heard.text, heard.notices) == ("I waited.", []), "it finished where it was"
        assert not (project / "started").exists()


def liar(folder: Path) -> OpenCodeSettings:
    """It says that it is another one, and is that no more when it is started, as `started` tells."""
    project = folder / "project"  # in its sandbox it can write there
    program = script(
        folder / "opencode",
        '[ "$1" = --version ] && exec echo 1.18.33',
        f'[ "$1" = acp ] && {stand_in(project)} acp',
        f'{stand_in(project)} "$@"',
    )
    return OpenCodeSettings(command=str(program), profile="hermetic")


async def test_what_is_another_than_it_said_is_refused_by_its_first_words(tmp_path: Path) -> None:
    async with stage(SCRIPT, tmp_path) as built:
        built.use(opencode=liar(tmp_path))
        with pytest.raises(UnsupportedVersion, match=r"is OpenCode 2\.0\.0"):
            async with built.driver.open(built.spec(built.settings.project)):
                pytest.fail("it was taken")
    assert (tmp_path / "project" / "started").read_text() == "acp\n", "it was not tried again"


async def test_a_server_that_is_another_than_it_said_is_refused(tmp_path: Path) -> None:
    async with serve_stage(SCRIPT, tmp_path) as built:
        built.use(opencode=liar(tmp_path))
        with pytest.raises(UnsupportedVersion, match=r"is OpenCode 2\.0\.0"):
            async with built.serving.open(built.spec(built.settings.project)):
                pytest.fail("it was taken")
    assert len((tmp_path / "project" / "started").read_text().splitlines()) == 1, (
        "it was not tried again"
    )


async def test_somebodys_server_of_the_second_kind_is_refused_at_once(tmp_path: Path) -> None:
    port, mark = free_port(), new_mark(new_owner("somebody"))
    program = script(tmp_path / "opencode", f'{stand_in(tmp_path)} "$@"')
    env = {**ENV, "OPENCODE_SERVER_PASSWORD": "theirs"}
    async with (
        supervised(
            [str(program), "serve", f"--port={port}"], cwd=tmp_path, env=env, mark=mark
        ) as it,
        serve_stage(SCRIPT, tmp_path) as built,
    ):
        with anyio.fail_after(PATIENCE):
            assert b"listening" in await it.stdout.receive()
        url = f"http://127.0.0.1:{port}"
        built.use(opencode=OpenCodeSettings(serve_url=url, serve_password_env="THEIRS"))
        built.environ["THEIRS"] = "theirs"
        with pytest.raises(UnsupportedVersion, match=rf"{url}' is OpenCode 2\.0\.0.*serve_url"):
            async with built.serving.open(built.spec(built.settings.project)):
                pytest.fail("it was used")


async def test_an_agent_that_turns_out_to_be_the_second_is_refused(tmp_path: Path) -> None:
    built = AgentStage(tmp_path)
    wrapper = script(tmp_path / "wrapped", f"{stand_in(built.kept)} acp")
    built.settings = replace(
        built.settings, agents={"actor": AgentSettings(command=(str(wrapper),))}
    )
    async with built.running():
        with pytest.raises(UnsupportedVersion, match=r"agents\.actor is OpenCode 2\.0\.0"):
            async with built.open():
                pytest.fail("it was used")


async def test_a_database_of_another_version_is_named_plainly(tmp_path: Path) -> None:
    """The real OpenCode, on what it takes for tables of its own."""
    async with stage(SCRIPT, tmp_path) as built:
        folder = tmp_path / "state" / "opencode-home" / ".local" / "share" / "opencode"
        folder.mkdir(parents=True)
        with sqlite3.connect(folder / "opencode.db") as database:
            for table in ("session", "project"):
                database.execute(f"create table {table} (id text)")
        database.close()
        with pytest.raises(UnsupportedVersion) as refused:
            async with built.driver.open(built.spec(built.settings.project)):
                pytest.fail("it was used")
    said = str(refused.value)
    assert said.startswith(f"OpenCode cannot use its database '{folder}/opencode.db'")
    assert REMEDY in said
    assert "\n" not in said


def test_a_stub_of_the_second_leads_to_no_program_of_the_first(tmp_path: Path) -> None:
    modules = tmp_path / "node_modules"
    stub = modules / "@opencode" / "cli" / "bin" / "opencode"
    first = modules / platform_packages()[0] / "bin" / "opencode"
    for path, content in ((stub, "echo postinstall script was not run"), (first, "\x7fELF")):
        path.parent.mkdir(parents=True)
        path.write_text(content)
        path.chmod(0o755)
    with pytest.raises(OpenCodeMissing, match="opencode-ai@1"):
        find_opencode(str(stub), {})
