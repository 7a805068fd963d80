"""Programs that lie in a repository, or above it, under the names that go-ent looks for."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from goent.agents.driver_context import public_environment
from goent.agents.opencode_program import find_opencode, find_ripgrep, platform_packages
from goent.composition.app import open_app
from goent.domain.errors import EnvironmentTrouble, OpenCodeMissing, RequestError, WorkerCrashed
from goent.domain.settings import Settings
from goent.operations.operation_table import Caller
from goent.proc.child_process import run_command, supervised
from goent.proc.process_table import new_mark, new_owner
from goent.proc.programs import find_program, run_short

RELATIVE = (".", "", "bin", "../bin", "./bin")
ELF = b"\x7fELF"


def program(path: Path, content: str = "#!/bin/sh\necho theirs\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)
    path.chmod(0o755)
    return path


def ripgrep_package() -> str:
    system, machine = platform_packages()[0].split("-")[1:3]
    return f"node_modules/@vscode/ripgrep-{system}-{machine}/bin/rg"


def test_a_repositorys_ripgrep_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "repo" / "inner"
    work.mkdir(parents=True)
    for folder in (work, work.parent, tmp_path):
        program(folder / ripgrep_package())
    monkeypatch.chdir(work)
    empty = {"PATH": str(tmp_path / "nowhere")}
    opencode = program(tmp_path / "opt" / "opencode")
    assert find_ripgrep(opencode, empty) is None, "no node_modules is above it but theirs"
    inside = program(tmp_path / "opt/node_modules/opencode-ai/bin/opencode")
    assert find_ripgrep(inside, empty) is None
    ours = program(tmp_path / "opt" / ripgrep_package())
    assert find_ripgrep(inside, empty) == ours


@pytest.mark.parametrize("entry", RELATIVE)
def test_what_a_relative_folder_of_the_path_has_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    work = tmp_path / "work"
    for folder in (work, work / "bin", tmp_path / "bin"):
        for name in ("rg", "opencode", "gemini"):
            program(folder / name)
    monkeypatch.chdir(work)
    environ = {"PATH": entry}
    opencode = program(tmp_path / "opt" / "opencode")
    assert find_ripgrep(opencode, environ) is None
    assert find_program("gemini", environ) is None
    with pytest.raises(OpenCodeMissing):
        find_opencode(None, environ)
    assert public_environment(Settings(project=work), environ)["PATH"] == ""


@pytest.mark.anyio
@pytest.mark.parametrize("entry", RELATIVE)
async def test_no_process_is_started_from_a_relative_folder_of_the_path(
    tmp_path: Path, entry: str
) -> None:
    work = tmp_path / "work"
    for folder in (work, work / "bin", tmp_path / "bin"):
        program(folder / "agent")
    environ = {"PATH": f"{entry}:{os.environ['PATH']}"}
    with pytest.raises(WorkerCrashed, match="absolute folder of the PATH"):
        await run_command(["agent"], cwd=work, env=environ, timeout=10)
    with pytest.raises(EnvironmentTrouble, match="absolute folder of the PATH"):
        await run_short(["agent"], cwd=work, env=environ, timeout=10)
    with pytest.raises(WorkerCrashed, match="absolute folder of the PATH"):
        async with supervised(["agent"], cwd=work, env=environ, mark=new_mark(new_owner("test"))):
            pass
    ours = program(tmp_path / "ours" / "agent", "#!/bin/sh\necho ours\n")
    environ = {"PATH": f"{environ['PATH']}:{ours.parent}"}
    assert (await run_command(["agent"], cwd=work, env=environ, timeout=10)).output == "ours\n"


@pytest.mark.anyio
async def test_git_is_not_looked_for_where_workers_write(tmp_path: Path) -> None:
    """An activated environment, or `node_modules/.bin`, is on the PATH of whoever starts go-ent there."""
    project, home = tmp_path / "project", tmp_path / "home"
    project.mkdir()
    home.mkdir()
    ran = tmp_path / "ran"
    program(project / ".venv" / "bin" / "git", f"#!/bin/sh\ntouch {ran}\nexit 1\n")
    subprocess.run(["git", "init", "--quiet"], cwd=project, check=True)  # noqa: ASYNC221 (once)
    environ = {"HOME": str(home), "PATH": f"{project}/.venv/bin:{os.environ['PATH']}"}
    async with open_app(project, environ) as app:
        asked = {"task": "x", "model": "none/none", "isolation": "worktree"}
        with suppress(RequestError):
            caller = Caller(name="the test", cwd=project)
            await app.operations.table["worker_spawn"].call(asked, caller)
        path = app.project.git_environ()["PATH"]
    assert find_program("git", {"PATH": path}) and not ran.exists()
    assert str(project) not in path
