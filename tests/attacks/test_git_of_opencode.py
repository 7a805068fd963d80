"""OpenCode asks git about every folder: a repository that nobody trusts runs nothing by that way either."""

from pathlib import Path

import pytest
from real_git import Repository
from world import World, a_world

from goent.git.repository_config import fetch_acts
from goent.testing.script import Script, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

SCRIPT = Script(providers={"moonshot": openai(case(None, say("Hello.")), key="sk-moon")})
METHODS = ("acp", "cli", "serve")


def partial_clone(top: Path, program: Path) -> Repository:
    """A repository whose first commit is missing, and is fetched by a program of its own."""
    repository = Repository(top)
    repository.git("init", "--quiet", "-b", "main")
    for message in ("one", "two"):
        repository.git("commit", "--quiet", "--allow-empty", "-m", message)
    missing = repository.git("rev-parse", "HEAD^")
    for key, value in {
        "core.repositoryFormatVersion": "1",
        "core.sshCommand": str(program),
        "extensions.partialClone": "elsewhere",
        "remote.elsewhere.promisor": "true",
        "remote.elsewhere.url": "ssh://localhost/x",
    }.items():
        repository.git("config", key, value)
    (top / ".git/objects" / missing[:2] / missing[2:]).unlink()
    return repository


def a_program(folder: Path, marker: Path) -> Path:
    program = folder / "fetch.sh"
    program.write_text(f"#!/bin/sh\ntouch {marker}\nexit 1\n")
    program.chmod(0o700)
    return program


async def run(world: World, method: str, cwd: Path) -> tuple[int, str]:
    ended = await world.go_ent(
        "run", "hello", "--method", method, "--permissions", "readonly", "--cwd", str(cwd)
    )
    return ended.exit, " ".join((ended.out + ended.err).split())


@pytest.mark.parametrize("method", METHODS)
async def test_a_missing_object_is_fetched_by_no_program_of_the_repository(
    tmp_path: Path, method: str
) -> None:
    async with a_world(tmp_path, SCRIPT) as world:
        marker = world.project / "marker"
        partial_clone(world.project, a_program(world.project, marker))
        code, said = await run(world, method, world.project)
        assert code == 1
        assert "sshCommand" in said and "`go-ent trust`" in said
        assert not marker.exists()
        assert (await world.go_ent("trust", "--yes")).exit == 0
        code, said = await run(world, method, world.project)
        assert code == 0, said
        assert marker.exists(), "the control: what is trusted does run"


async def test_what_is_allowed_for_a_repository_inside_another_one_is_allowed(
    tmp_path: Path,
) -> None:
    """The remedy that the refusal names, where the worker's folder is a project of its own."""
    async with a_world(tmp_path, SCRIPT) as world, world.client() as lead:
        Repository(world.project).git("init", "--quiet", "-b", "main")
        inner = world.project / "inner"
        inner.mkdir()
        partial_clone(inner, a_program(tmp_path, tmp_path / "marker"))
        task = {"task": "hello", "cwd": str(inner), "permissions": "readonly", "wait_s": 60}
        refused = str(await lead.call_tool("worker_spawn", task))
        assert f"go-ent trust {inner}" in refused
        assert (await world.go_ent("trust", str(inner), "--yes")).exit == 0
        assert "go-ent trust" not in str(await lead.call_tool("worker_spawn", task))


async def test_an_included_file_is_looked_into(tmp_path: Path) -> None:
    top = tmp_path / "repo"
    top.mkdir()
    repository = partial_clone(top, tmp_path / "fetch.sh")
    repository.git("config", "--unset", "core.sshCommand")
    assert fetch_acts(top) == ()
    (top / "more").write_text("[core]\n\tsshCommand = ./evil.sh\n")
    repository.git("config", "include.path", "../more")
    (found,) = fetch_acts(top)
    assert found.digest == "", "what may be another file tomorrow cannot be allowed"
