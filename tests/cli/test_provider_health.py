"""What a person sees of providers that are not well, and how one is asked again."""

import json
import os
import time
from pathlib import Path

import anyio
import pytest
from desk import Desk, OpenDesk
from scripted_project import CODER, GLM

from goent.cli.display import failure_text
from goent.cli.main import run_cli
from goent.cli.route_commands import show_providers
from goent.config.trust_survey import trust_everything
from goent.domain.errors import OutOfCredit, RateLimited, WorkerError
from goent.domain.replies import HealthLabel, ProviderList, ProviderView
from goent.domain.settings import Backend
from goent.domain.types import Failure, Provider
from goent.providers.provider_health import CircuitBreakers, account_id, repair_record
from goent.providers.track_record import SqliteHealths
from goent.system.project_folders import state_dir
from goent.testing.driver import say

LIMITED = RateLimited("429: slow down", retry_after_s=3600)


def fail(desk: Desk, provider: Provider, error: WorkerError) -> None:
    async def tell() -> None:
        await desk.project.calls.healths.record_failure(provider, error, began=time.time())

    desk.portal.call(tell)


@pytest.mark.spec("P27", "P36", "P38")
def test_the_table_says_until_when_and_why(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        fail(desk, GLM, LIMITED)
        fail(desk, CODER, OutOfCredit("402: empty"))
        shown = desk.go_ent("providers").out
        assert "limited, 59m" in shown
        assert "429: slow down" in shown
        assert "402: empty; top up" in shown
        glm, _ = json.loads(desk.go_ent("providers", "--json").out)["providers"]
        assert (glm["health"], glm["health_reason"]) == ("limited", "429: slow down")
        assert glm["cooldown_until"].endswith("Z")
        assert json.loads(desk.go_ent("providers", "--healthy", "--json").out)["providers"] == []
        assert "no provider is usable now" in desk.go_ent("providers", "--healthy").out


def test_a_provider_is_forgotten_by_name_or_all_at_once(open_desk: OpenDesk) -> None:
    with open_desk(lambda _: [say("done")]) as desk:
        assert desk.go_ent("providers", "reset").out == "nothing to forget\n"
        fail(desk, GLM, LIMITED)
        fail(desk, CODER, LIMITED)
        assert desk.go_ent("providers", "reset", "glm").out == "forgot: glm\n"
        told = json.loads(desk.go_ent("providers", "reset", "--json").out)
        assert told == {"providers": [CODER.name]}
        assert "slow down" not in desk.go_ent("providers").out
        unknown = desk.go_ent("providers", "reset", "gml")
        assert (unknown.code, unknown.out) == (2, "")
        assert "unknown provider 'gml'; there are: glm, " in unknown.err


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / ".goent").mkdir(parents=True)
    (folder / ".goent" / "providers.yaml").write_text(
        "providers:\n"
        "  mine: {provider: mine, model: m, base_url: 'http://127.0.0.1:9/v1', api_key_env: MY_KEY}\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path))
    trust_everything(folder, os.environ)
    monkeypatch.setenv("MY_KEY", "sk-mine")
    monkeypatch.setenv("GOENT_OPENCODE", "/nowhere")  # asking it for its version takes a second
    return folder


@pytest.mark.usefixtures("project")
@pytest.mark.spec("P36")
def test_the_doctor_names_who_is_out_without_a_daemon(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run_cli(["doctor"])
    assert "rate limited" not in capsys.readouterr().out
    backend = Backend(id="mine", base_url="http://127.0.0.1:9/v1", key_env="MY_KEY")
    provider = Provider(name="mine", backend="mine", model="m")

    async def learn() -> None:
        path = state_dir(os.environ) / "health.db"
        async with SqliteHealths.open(path, mend=repair_record) as kept:
            healths = CircuitBreakers(kept, account=lambda _: account_id(backend, os.environ))
            await healths.record_failure(provider, LIMITED, began=time.time())

    anyio.run(learn)
    run_cli(["doctor"])
    said = capsys.readouterr().out
    assert "rate limited until" in said and "429: slow down" in said
    assert "go-ent providers reset mine" in said
    assert "all are unavailable now" in said
    monkeypatch.setenv("MY_KEY", "sk-another")
    run_cli(["doctor"])
    assert "rate limited" not in capsys.readouterr().out, "another account"


@pytest.mark.usefixtures("project")
def test_the_doctor_survives_a_damaged_file(capsys: pytest.CaptureFixture[str]) -> None:
    path = state_dir(os.environ) / "health.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"no database" * 500)
    run_cli(["doctor"])
    assert "! health" in capsys.readouterr().out


def _view(health: HealthLabel, reason: str) -> ProviderView:
    return ProviderView(
        name="dead",
        backend="dead",
        model="m",
        method="api",
        capabilities=(),
        context_limit=None,
        price=None,
        cost_estimate=None,
        health=health,
        health_reason=reason,
        cooldown_until=None,
        in_use=0,
        calls=0,
        limits={},
        default=False,
    )


def test_a_provider_whose_pause_is_over_is_not_called_ready_because_of_its_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show_providers(ProviderList(providers=(_view("ready", "connection refused"),)))
    line = "dead failed last time, and the next call tries it again: connection refused"
    assert line in capsys.readouterr().out


def test_a_retry_is_recommended_only_where_it_can_help() -> None:
    limited = Failure(kind="rate_limited", message="429", retryable=True)
    down = Failure(kind="provider_down", message="start the server", retryable=True)
    assert failure_text(limited).endswith("; a retry may help")
    assert failure_text(down) == "provider_down: start the server"
