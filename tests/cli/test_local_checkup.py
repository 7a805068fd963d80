"""What `go-ent doctor` says of model servers of the user's own."""

from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from model_server import ModelServer, Routes, ollama, vllm

from goent.cli.doctor import DoctorFinding, examine

OLLAMA = ollama({"qwen3:8b": 40_960, "llama3.2:3b": 131_072})
NONE: Mapping[str, int] = {}


@pytest.fixture
def portal() -> Generator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """A machine with nothing on it; `examine` looks at the folder that it is in."""
    for name in ("run", "project/.git"):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    told = {
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    return told


def running(portal: BlockingPortal, routes: Routes) -> AbstractContextManager[ModelServer]:
    return portal.wrap_async_context_manager(ModelServer.open(routes))


def write(tmp_path: Path, *lines: str) -> None:
    own = tmp_path / ".config" / "go-ent" / "providers.yaml"
    own.parent.mkdir(parents=True)
    own.write_text("\n".join(["providers:", *lines, ""]))


def findings(
    tmp_path: Path, environ: Mapping[str, str], usual: Mapping[str, int] = NONE
) -> dict[str, DoctorFinding]:
    diagnosis = examine(tmp_path / "project", environ, usual)
    return {finding.subject: finding for finding in diagnosis.findings}


def test_a_server_that_runs_is_fine_and_what_else_it_has_is_told(
    tmp_path: Path, environ: Mapping[str, str], portal: BlockingPortal
) -> None:
    with running(portal, OLLAMA) as server:
        write(
            tmp_path,
            f"  mine: {{provider: ollama, model: 'qwen3:8b', base_url: '{server.base_url}'}}",
        )
        found = findings(tmp_path, environ)
    mine, rest = found["provider mine"], found["server ollama"]
    assert (mine.verdict, rest.verdict) == ("fine", "fine")
    assert mine.text == f"ollama/qwen3:8b, at {server.base_url}, needs no key"
    assert rest.text == f"{server.base_url}, also has ollama/llama3.2:3b"


def test_one_that_does_not_run_says_how_it_is_started(
    tmp_path: Path, environ: Mapping[str, str], portal: BlockingPortal
) -> None:
    with running(portal, OLLAMA) as server:
        write(
            tmp_path,
            f"  mine: {{provider: ollama, model: 'qwen3:8b', base_url: '{server.base_url}'}}",
        )
    found = findings(tmp_path, environ)
    mine = found["provider mine"]
    assert (mine.verdict, mine.text) == ("note", f"Ollama is not running at {server.base_url}")
    assert mine.remedy == "start it with `ollama serve`, or correct its base_url"
    assert found["providers"].verdict == "wrong"


def test_a_model_that_is_not_there_is_told_with_its_remedy(
    tmp_path: Path, environ: Mapping[str, str], portal: BlockingPortal
) -> None:
    with running(portal, OLLAMA) as server:
        write(
            tmp_path, f"  mine: {{provider: ollama, model: mistral, base_url: '{server.base_url}'}}"
        )
        mine = findings(tmp_path, environ)["provider mine"]
    assert mine.text == f"Ollama at {server.base_url} has no model 'mistral'"
    assert mine.remedy == "get it with `ollama pull mistral`"


def test_a_server_that_no_file_names_is_pointed_out_with_the_line_to_write(
    tmp_path: Path, environ: Mapping[str, str], portal: BlockingPortal
) -> None:
    with running(portal, vllm("Qwen/Qwen3-8B", 4096)) as server:
        found = findings(tmp_path, environ, {"vllm": server.port})
        note = found["server vllm"]
        assert note.verdict == "note"
        assert note.text == (
            f"answers at {server.base_url} with Qwen/Qwen3-8B, but no settings file names it"
        )
        line = f"vllm: {{provider: vllm, model: 'Qwen/Qwen3-8B', base_url: '{server.base_url}'}}"
        assert f"`{line}`" in note.remedy
        write(tmp_path, f"  {line}")
        found = findings(tmp_path, environ, {"vllm": server.port})
    assert found["provider vllm"].verdict == "fine"
    assert "server vllm" not in found


def test_whatever_else_listens_there_is_left_alone(
    tmp_path: Path, environ: Mapping[str, str], portal: BlockingPortal
) -> None:
    with running(portal, {"GET /v1/models": "<html>"}) as server:
        assert "server vllm" not in findings(tmp_path, environ, {"vllm": server.port})
        assert [asked.what for asked in server.asked] == ["GET /v1/models"]


def test_what_a_key_brings_is_told_in_one_line(tmp_path: Path, environ: Mapping[str, str]) -> None:
    write(tmp_path, "  mine: {provider: anthropic, model: claude-haiku-4-5}")
    found = findings(tmp_path, {**environ, "ANTHROPIC_API_KEY": "sk-own", "GROQ_API_KEY": "sk-own"})
    told = {name: f.text for name, f in found.items() if name.startswith("provider ")}
    assert told["provider mine"] == "anthropic/claude-haiku-4-5, key in ANTHROPIC_API_KEY"
    assert told["provider anthropic"].startswith("key in ANTHROPIC_API_KEY: claude-haiku-4-5, ")
    assert "short names: haiku (claude-haiku-4-5), sonnet (" in told["provider anthropic"]
    assert told["provider groq"].startswith("key in GROQ_API_KEY: ")
    assert len(told) == 3
