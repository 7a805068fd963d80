"""Who has the last word, and what there is when nobody says anything."""

from decimal import Decimal
from pathlib import Path

import pytest
from ground import Ground

from goent.config.provider_settings import KNOWN_BACKENDS, SHORT_NAMES
from goent.domain.errors import NoRoute
from goent.domain.settings import (
    AgentSettings,
    Backend,
    BudgetSettings,
    DaemonSettings,
    LimitSettings,
    OpenCodeSettings,
    PermissionRule,
    PermissionSettings,
    Settings,
)
from goent.domain.types import Pin
from goent.routing.pins import choose_pinned

WHOLE = """
default_provider: anthropic/claude-haiku-4-5
permissions:
  preset: readonly
  timeout_s: 60
  rules: [{tool: bash, pattern: "git *", action: allow}, {tool: webfetch, action: deny}]
isolation: copy
budget: {per_day: 5, hard: yes, direct: stop}
failover: {pinned: true}
limits: {workers: 3, idle_close_s: 60, cancel_grace_s: 0, turn_timeout_s: 600, stall_s: 9,
  verify_s: 8}
learning: off
agents:
  gemini: {command: [gemini, --acp], models: [gemini-3-pro]}
daemon: {idle_exit_s: 5}
opencode: {command: /opt/opencode, project_config: true, warm: off, standby: never, start_timeout_s: 9,
  serve_url: "http://127.0.0.1:4096/", serve_password_env: SERVE_PASSWORD}
profile: hermetic
"""


def test_nothing_at_all_is_enough(ground: Ground) -> None:
    settings = ground.load()
    assert settings == Settings(project=ground.project, usual_keys=settings.usual_keys)


def test_every_setting_changes_something(ground: Ground) -> None:
    path = ground.write(".goent/config.yaml", WHOLE)
    settings = ground.load(ANTHROPIC_API_KEY="k")
    bare = Settings(
        project=ground.project,
        default_provider="anthropic/claude-haiku-4-5",
        default_chosen=True,
        permissions=PermissionSettings(
            preset="readonly",
            timeout_s=60,
            rules=(
                PermissionRule(tool="bash", pattern="git *", action="allow"),
                PermissionRule(tool="webfetch", action="deny"),
            ),
        ),
        isolation="copy",
        budget=BudgetSettings(per_day=Decimal(5), hard=True, direct="stop"),
        failover_pinned=True,
        limits=LimitSettings(
            workers=3,
            idle_close_s=60,
            cancel_grace_s=0,
            turn_timeout_s=600,
            stall_s=9,
            verify_s=8,
        ),
        learning=False,
        agents={"gemini": AgentSettings(command=("gemini", "--acp"), models=("gemini-3-pro",))},
        daemon=DaemonSettings(idle_exit_s=5),
        opencode=OpenCodeSettings(
            command="/opt/opencode",
            profile="hermetic",
            project_config=True,
            warm=False,
            standby="never",
            start_timeout_s=9,
            serve_url="http://127.0.0.1:4096",
            serve_password_env="SERVE_PASSWORD",
        ),
        files=(path,),
        providers=settings.providers,
        backends=settings.backends,
        usual_keys=settings.usual_keys,
    )
    assert settings == bare


def test_the_project_goes_over_the_user_and_the_environment_over_both(ground: Ground) -> None:
    ground.write(
        "~/.config/go-ent/config.yaml",
        "limits: {workers: 1, idle_close_s: 7}\nprofile: hermetic\nisolation: copy",
    )
    ground.write(
        ".goent/config.yaml", "limits: {workers: 2}\nopencode: {profile: user, command: a}"
    )
    settings = ground.load()
    assert settings.limits == LimitSettings(workers=2, idle_close_s=7)
    assert (settings.opencode.profile, settings.isolation) == ("user", "copy")

    opencode = ground.load(GOENT_PROFILE="hermetic", GOENT_OPENCODE="b").opencode
    assert (opencode.profile, opencode.command) == ("hermetic", "b")


def test_the_users_folder_is_where_xdg_says(ground: Ground) -> None:
    ground.write("~/elsewhere/go-ent/config.yaml", "isolation: copy")
    assert ground.load(XDG_CONFIG_HOME=str(ground.home / "elsewhere")).isolation == "copy"
    assert ground.load(XDG_CONFIG_HOME="elsewhere").isolation == "auto"


def test_an_empty_key_takes_nothing_away_and_null_does(ground: Ground) -> None:
    ground.write("~/.config/go-ent/config.yaml", "budget: {per_day: 5, per_task: 1}")
    ground.write(".goent/config.yaml", "budget:\n  # per_day: 7\n")
    assert ground.load().budget == BudgetSettings(per_day=Decimal(5), per_task=Decimal(1))
    ground.write(".goent/config.yaml", "budget: {per_day: null}")
    assert ground.load().budget == BudgetSettings(per_task=Decimal(1))


def test_a_budget_may_stand_in_either_file(ground: Ground) -> None:
    ground.write(".goent/providers.yaml", "budget: {per_task: 1, per_day: 5}")
    ground.write(".goent/config.yaml", "budget: {per_day: 7}")
    assert ground.load().budget == BudgetSettings(per_task=Decimal(1), per_day=Decimal(7))


@pytest.mark.parametrize("backend", KNOWN_BACKENDS)
def test_a_key_in_the_environment_is_enough(ground: Ground, backend: str) -> None:
    known = KNOWN_BACKENDS[backend]
    for variable in known.variables:
        settings = ground.load(**{variable: "k"})
        assert settings.backends == {
            backend: Backend(
                id=backend,
                dialect=known.dialect,
                base_url=known.base_url,
                key_env=variable,
                source="environment",
            )
        }
        names = {provider.name for provider in settings.providers}
        assert names >= {f"{backend}/{model}" for model in known.models}
        assert set(settings.key_names) >= set(known.variables)


def test_short_names_stand_for_models_of_the_table() -> None:
    for backend, model in SHORT_NAMES.values():
        assert model in KNOWN_BACKENDS[backend].models


@pytest.mark.parametrize(
    "pin",
    [
        Pin(provider="haiku"),
        Pin(model="haiku"),
        Pin(provider="anthropic", model="haiku"),
        Pin(model="anthropic/haiku"),
    ],
)
def test_a_key_alone_makes_its_short_names_work(ground: Ground, pin: Pin) -> None:
    route = choose_pinned(pin, ground.load(ANTHROPIC_API_KEY="k"), ("acp",))
    assert route.provider.opencode_model == "anthropic/claude-haiku-4-5"


def test_a_short_name_without_its_key_is_refused(ground: Ground) -> None:
    with pytest.raises(NoRoute, match="unknown provider 'haiku'"):
        choose_pinned(Pin(provider="haiku"), ground.load(DEEPSEEK_API_KEY="k"), ("acp",))


def test_a_short_name_of_the_file_is_not_overruled(ground: Ground) -> None:
    entry = "providers: {haiku: {provider: anthropic, model: claude-3-haiku}}"
    ground.write(".goent/providers.yaml", entry)
    models = {p.name: p.model for p in ground.load(ANTHROPIC_API_KEY="k").providers}
    assert models["haiku"] == "claude-3-haiku"
    assert models["sonnet"] == "claude-sonnet-5"


def test_the_file_goes_over_opencode_and_opencode_over_the_table(ground: Ground) -> None:
    offer = '{"deepseek": {"options": {"baseURL": "http://theirs/v1", "apiKey": "theirs"}}}'
    opencode = ground.write("~/.config/opencode/opencode.json", f'{{"provider": {offer}}}')
    theirs = ground.load(DEEPSEEK_API_KEY="k").backends["deepseek"]
    assert (theirs.base_url, theirs.resolve_key({})) == ("http://theirs/v1", "theirs")

    entry = "provider: deepseek, model: m, base_url: http://ours/v1, api_key_env: OUR_KEY"
    ground.write(".goent/providers.yaml", f"providers: {{a: {{{entry}}}}}")
    ours = ground.load(DEEPSEEK_API_KEY="k").backends["deepseek"]
    assert (ours.base_url, ours.key_env, ours.key) == ("http://ours/v1", "OUR_KEY", None)

    opencode.unlink()
    (ground.project / ".goent/providers.yaml").unlink()
    table = ground.load(DEEPSEEK_API_KEY="k").backends["deepseek"]
    assert (table.base_url, table.key_env) == ("https://api.deepseek.com", "DEEPSEEK_API_KEY")


def test_models_of_the_table_are_not_expected_at_another_address(ground: Ground) -> None:
    entry = "provider: deepseek, model: m, base_url: http://ours/v1, api_key_env: OUR_KEY"
    ground.write(".goent/providers.yaml", f"providers: {{a: {{{entry}}}}}")
    assert [provider.name for provider in ground.load(OUR_KEY="k").providers] == ["a"]


def test_the_default_provider_is_the_first_that_somebody_names(ground: Ground) -> None:
    assert ground.load().default_provider is None
    assert ground.load(ANTHROPIC_API_KEY="k").default_provider == "sonnet"
    assert ground.load(DEEPSEEK_API_KEY="k", ZAI_API_KEY="k").default_provider == "glm"

    ground.write(
        "~/.config/opencode/opencode.json", '{"model": "a/m", "provider": {"a": {}, "b": {}}}'
    )
    assert ground.load().default_provider == "a/m"

    two = "one: {provider: a, model: m}, two: {provider: b, model: m}"
    entries = f"providers: {{{two}}}\ndefaults: {{implementation: two}}"
    ground.write(".goent/providers.yaml", entries)
    assert ground.load().default_provider == "two"

    ground.write(".goent/config.yaml", "default_provider: one")
    assert ground.load().default_provider == "one"
    assert ground.load(GOENT_DEFAULT_PROVIDER="b/other").default_provider == "b/other"
    assert "b/other" in {p.name for p in ground.load(GOENT_DEFAULT_PROVIDER="b/other").providers}


def test_the_only_provider_is_the_default(ground: Ground) -> None:
    ground.write(".goent/providers.yaml", "providers: {only: {provider: a, model: m}}")
    assert ground.load().default_provider == "only"


def test_an_agents_entry_has_no_backend(ground: Ground) -> None:
    ground.write(".goent/config.yaml", "agents: {gemini: {command: [gemini, --acp]}}")
    entry = "providers: {g: {method: agent, provider: gemini, model: gemini-3-pro}}"
    ground.write(".goent/providers.yaml", entry)
    assert ground.load().backends == {}


def test_a_path_in_a_file_starts_at_the_project(ground: Ground, tmp_path: Path) -> None:
    named = ground.write("conf/opencode.json", "{}")
    ground.write(".goent/config.yaml", "opencode: {config_path: conf/opencode.json}")
    assert ground.load().opencode.config_path == named
    assert named.is_relative_to(tmp_path)
