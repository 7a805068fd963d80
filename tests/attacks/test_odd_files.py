"""Files of a repository that are pipes, devices, or links that lead away."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from goent.agent.agent_session import project_instructions
from goent.agent.tools.path_patterns import read_ignore_rules
from goent.cli.daemon_client import CommandError
from goent.cli.swarm_commands import read_task_file
from goent.config.settings_loader import load_settings
from goent.domain.errors import ConfigError, RequestError
from goent.evals.eval_results import read_rows
from goent.evals.files.file_source import dotenv_variables
from goent.evals.files.suite_reader import load_suites
from goent.system.plain_files import FileTooLarge, NotPlainFile, read_beginning, read_plain

pytestmark = pytest.mark.timeout(20)

LITTLE_MEMORY = ("/bin/sh", "-c", 'ulimit -v 4000000; exec "$@"', "sh")
Odd = Callable[[Path], None]


def zero(path: Path) -> None:
    path.symlink_to("/dev/zero")


ODD = pytest.mark.parametrize("odd", [os.mkfifo, zero], ids=["a pipe", "an endless device"])


@pytest.fixture
def environ(tmp_path: Path) -> Mapping[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    return {
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_STATE_HOME": str(home / "state"),
        "PATH": os.environ["PATH"],
    }


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".goent").mkdir(parents=True)
    return folder


@ODD
@pytest.mark.parametrize("name", ["config.yaml", "providers.yaml", "routing.yaml"])
def test_settings_that_are_no_file_are_told(
    project: Path, environ: Mapping[str, str], odd: Odd, name: str
) -> None:
    odd(project / ".goent" / name)
    with pytest.raises(ConfigError, match=rf"{name}: is a (pipe|link that leads out)"):
        load_settings(project, environ)


def test_a_settings_file_that_leads_out_of_the_project_is_not_read(
    project: Path, environ: Mapping[str, str], tmp_path: Path
) -> None:
    (tmp_path / "secret.yaml").write_text("learning: true\n")
    (project / ".goent/config.yaml").symlink_to(tmp_path / "secret.yaml")
    with pytest.raises(ConfigError, match=r"config\.yaml: is a link that leads out of"):
        load_settings(project, environ)
    (project / "shared.yaml").write_text("limits: {workers: many}\n")
    (project / ".goent/config.yaml").unlink()
    (project / ".goent/config.yaml").symlink_to("../shared.yaml")
    with pytest.raises(ConfigError, match="'many'"):  # it was read
        load_settings(project, environ)


def test_a_settings_folder_that_leads_out_of_the_project_is_not_read(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.yaml").write_text("learning: true\n")
    (tmp_path / "p").mkdir()
    (tmp_path / "p/.goent").symlink_to(other)
    with pytest.raises(ConfigError, match="leads out of"):
        load_settings(tmp_path / "p", environ)


@ODD
def test_tasks_suites_variables_and_rows_that_are_no_files_are_told(
    tmp_path: Path, environ: Mapping[str, str], odd: Odd
) -> None:
    for name in ("tasks.yaml", "a.eval.yaml", ".env", "index.jsonl"):
        odd(tmp_path / name)
    with pytest.raises(CommandError, match="not a regular file"):
        read_task_file(str(tmp_path / "tasks.yaml"))
    with pytest.raises(ConfigError, match="not a regular file"):
        load_suites([tmp_path / "a.eval.yaml"], environ)
    assert dotenv_variables(tmp_path) == {}
    with pytest.raises(RequestError, match="not a regular file"):
        read_rows(tmp_path / "index.jsonl")


@ODD
def test_instructions_and_ignore_files_that_are_no_files_say_nothing(
    tmp_path: Path, odd: Odd
) -> None:
    odd(tmp_path / "AGENTS.md")
    odd(tmp_path / ".gitignore")
    (tmp_path / "CLAUDE.md").write_text("Be kind.\n")
    assert "Be kind." in project_instructions(tmp_path)[0]
    assert not read_ignore_rules(str(tmp_path))


def test_a_file_that_is_longer_than_it_says_is_read_up_to_the_bound() -> None:
    """Files of the kernel say that they have no bytes."""
    said = Path("/proc/self/status")
    assert said.stat().st_size == 0
    with pytest.raises(FileTooLarge, match="larger than 10 bytes"):
        read_plain(said, 10)
    assert len(read_beginning(said, 10)) == 10


@ODD
def test_the_real_command_neither_hangs_nor_fills_the_memory(
    project: Path, environ: Mapping[str, str], odd: Odd
) -> None:
    odd(project / ".goent/config.yaml")
    odd(project / "tasks.yaml")
    for command in (("doctor",), ("eval", "validate"), ("swarm", "tasks.yaml")):
        done = subprocess.run(
            [*LITTLE_MEMORY, sys.executable, "-P", "-m", "goent", *command],
            cwd=project,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=15,
        )
        assert done.returncode in {2, 3}, (command, done)


# `go-ent init`, and what a repository put in its way.


def init(project: Path, environ: Mapping[str, str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "goent", "init"],
        cwd=project,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=15,
    )


@pytest.mark.parametrize("name", [".goent", ".goent/config.yaml", ".mcp.json"])
@pytest.mark.parametrize("there", [True, False])
def test_init_writes_through_no_link(
    tmp_path: Path, environ: Mapping[str, str], name: str, *, there: bool
) -> None:
    project, outside = tmp_path / "p", tmp_path / "outside"
    project.mkdir()
    (project / ".git").mkdir()
    outside.mkdir()
    target = outside / "target"
    if there and name == ".goent":
        target.mkdir()
    elif there:
        target.write_text("{}\n")
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).symlink_to(target)
    before = {path: path.is_file() and path.read_text() for path in outside.rglob("*")}
    done = init(project, environ)
    assert done.returncode == 2, done
    assert f"{name}' is a link to '{target}'" in done.stderr
    assert {path: path.is_file() and path.read_text() for path in outside.rglob("*")} == before
    left = sorted(str(path.relative_to(project)) for path in project.rglob("*"))
    assert left == sorted({".git", name, str(Path(name).parent)} - {"."}), "nothing was changed"


def test_init_replaces_no_pipe_and_keeps_the_mode_of_a_file(
    project: Path, environ: Mapping[str, str]
) -> None:
    os.mkfifo(project / ".mcp.json")
    done = init(project, environ)
    assert done.returncode == 2 and "is a pipe" in done.stderr
    (project / ".mcp.json").unlink()
    (project / ".mcp.json").write_text('{"mcpServers": {"other": {"command": "x"}}}')
    (project / ".mcp.json").chmod(0o640)
    assert init(project, environ).returncode == 0
    assert (project / ".mcp.json").stat().st_mode & 0o777 == 0o640
    assert '"other"' in (project / ".mcp.json").read_text()
    assert sorted(path.name for path in project.iterdir()) == [".goent", ".mcp.json"]


def test_a_link_that_leads_inside_is_read_where_it_may_be(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("text")
    (tmp_path / "link").symlink_to("real")
    assert read_plain(tmp_path / "link", 10, inside=tmp_path) == b"text"
    (tmp_path / "up").symlink_to("/etc/passwd")
    with pytest.raises(NotPlainFile, match="leads out of"):
        read_plain(tmp_path / "up", 10**6, inside=tmp_path)
