"""`init`, `doctor` and what is said when the machine or the settings are not ready."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from goent import __version__
from goent.cli.main import run_cli
from goent.config.trust_survey import trust_everything

ENTRY = "mcpServers"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".goent").mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_init_writes_settings_and_an_mcp_server(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(["init"]) == 0
    servers = json.loads((project / ".mcp.json").read_text())[ENTRY]
    assert servers["go-ent"]["args"] == ["mcp"]
    assert (project / ".goent" / "config.yaml").is_file()
    assert "wrote .mcp.json" in capsys.readouterr().out
    assert run_cli(["init"]) == 0
    assert "nothing to do: everything exists already" in capsys.readouterr().out


def test_init_leaves_other_servers_alone(project: Path) -> None:
    path = project / ".mcp.json"
    before = {"other": 1, ENTRY: {"mine": {"command": "mine"}}}
    path.write_text(json.dumps(before))
    path.chmod(0o600)
    assert run_cli(["init"]) == 0
    after = json.loads(path.read_text())
    assert after["other"] == 1
    assert list(after[ENTRY]) == ["mine", "go-ent"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_init_replaces_its_own_entry_only_when_told(project: Path) -> None:
    path = project / ".mcp.json"
    path.write_text(json.dumps({ENTRY: {"go-ent": {"command": "old"}}}))
    run_cli(["init"])
    assert json.loads(path.read_text())[ENTRY]["go-ent"] == {"command": "old"}
    run_cli(["init", "--force"])
    assert json.loads(path.read_text())[ENTRY]["go-ent"]["args"] == ["mcp"]


@pytest.mark.parametrize("text", ['{"mcpServers": {', "[]", '{"mcpServers": []}'])
def test_init_never_destroys_a_file_it_cannot_read(
    project: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    path = project / ".mcp.json"
    path.write_text(text)
    assert run_cli(["init"]) == 2
    assert path.read_text() == text
    assert "nothing was changed" in capsys.readouterr().err


def test_the_doctor_names_every_mistake_in_the_settings(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / ".goent" / "config.yaml").write_text("limits:\n  workers: many\nbudgt: {}\n")
    assert run_cli(["doctor", "--json"]) in (2, 3)
    findings = json.loads(capsys.readouterr().out)["findings"]
    wrong = [f["text"] for f in findings if f["subject"] == "settings"]
    assert any(".goent/config.yaml:2" in text for text in wrong)
    assert any("budgt" in text for text in wrong)


@pytest.mark.usefixtures("project")
def test_the_doctor_says_how_to_get_opencode(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOENT_OPENCODE", "/nowhere/opencode")
    assert run_cli(["doctor"]) == 3
    said = capsys.readouterr().out
    assert "✗ opencode" in said
    assert "npm install -g opencode-ai" in said


def test_the_doctor_names_the_missing_key(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / ".goent" / "providers.yaml").write_text(
        "providers:\n"
        "  mine: {provider: mine, model: m, base_url: 'http://127.0.0.1:9/v1', api_key_env: MY_KEY}\n"
    )
    trust_everything(project, os.environ)
    monkeypatch.setenv("GOENT_OPENCODE", "/nowhere")  # asking it for its version takes a second
    run_cli(["doctor"])
    said = capsys.readouterr().out
    assert "! provider mine" in said
    assert "export MY_KEY=…" in said
    monkeypatch.setenv("MY_KEY", "secret-value")
    run_cli(["doctor"])
    said = capsys.readouterr().out
    assert "✓ provider mine" in said
    assert "secret-value" not in said


@pytest.mark.usefixtures("project")
def test_the_demo_says_when_opencode_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOENT_OPENCODE", "/nowhere/opencode")
    assert run_cli(["demo"]) == 3
    assert "there is no program '/nowhere/opencode'" in capsys.readouterr().err


@pytest.mark.usefixtures("project")
def test_no_daemon_is_no_error_worth_a_riddle(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["daemon", "status"]) == 1
    assert "no daemon is running for" in capsys.readouterr().out
    assert run_cli(["daemon", "status", "--json"]) == 1
    assert capsys.readouterr().out == "null\n"
    assert run_cli(["daemon", "stop"]) == 0


@pytest.mark.usefixtures("project")
def test_a_task_that_looks_like_an_option_gets_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    for words, hint in (
        (["run", "-x marks the spot"], "go-ent run -- '-…'"),
        (["prompt", "last", "- and a list"], "go-ent prompt last -- '-…'"),
    ):
        assert run_cli(words) == 2
        assert hint in capsys.readouterr().err
    assert run_cli(["ps", "--nonsense"]) == 2
    assert "behind" not in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(["--version"]) == 0
    assert capsys.readouterr().out == f"go-ent {__version__}\n"


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli([]) == 0
    said = capsys.readouterr().out
    assert "go-ent demo" in said
    assert "doctor" in said


def test_a_reader_who_has_enough_is_no_error(project: Path) -> None:
    nobody, out = os.pipe()
    os.close(nobody)
    done = subprocess.run(
        [sys.executable, "-m", "goent", "daemon", "status"],
        cwd=project,
        stdout=out,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(out)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_terminal_without_these_letters_is_no_reason_to_fail(project: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "goent", "doctor"],
        cwd=project,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "GOENT_OPENCODE": "/nowhere"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, b"")
    assert b"? opencode" in done.stdout


def test_ordinary_commands_load_neither_rich_nor_mcp_nor_asyncio(project: Path) -> None:
    code = (
        "import sys; from goent.cli.main import run_cli; "
        "run_cli(['daemon', 'status', '--json']); "
        "print(sorted({'rich', 'mcp', 'asyncio', 'anyio', 'httpx2', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
