"""What a project's settings may say before anybody has trusted it, and what waits for a yes."""

import json
from pathlib import Path

import pytest
from ground import Ground

from goent.config.settings_loader import load_settings
from goent.config.trust_records import (
    decline,
    grant,
    read_approvals,
    read_record,
    record_path,
    revoke,
)
from goent.config.trust_survey import find_acts, trust_everything
from goent.domain.settings import PermissionRule

PROVIDER = "providers:\n  mine: {{provider: moonshot, model: kimi{more}}}\n"
# A file's text, and the settings of it that wait for a yes.
WAITING = {
    "agents:\n  a: {command: [evil]}": ["agents.a"],
    "agents:\n  a: {command: [evil]}\n  b: {command: [x, y]}": ["agents.a", "agents.b"],
    "agent: {writable: [.ssh]}": ["agent.writable"],
    "opencode: {command: ./evil}": ["opencode.command"],
    "opencode: {config_path: evil.json}": ["opencode.config_path"],
    "opencode: {project_config: true}": ["opencode.project_config"],
    "opencode: {project_config: yes}": ["opencode.project_config"],
    "opencode: {serve_url: 'http://evil.example'}": ["opencode.serve_url"],
    "opencode: {serve_password_env: ANTHROPIC_API_KEY}": ["opencode.serve_url"],
    "permissions: {preset: edit}": ["permissions.preset"],
    "permissions: {preset: auto}": ["permissions.preset"],
    "permissions: {rules: [{tool: bash, action: allow}]}": ["permissions.rules"],
    "permissions: {rules: [{tool: bash, action: ask}]}": ["permissions.rules"],
    "isolation: worktree": ["isolation"],
    "isolation: copy\npermissions: {preset: auto}": ["permissions.preset", "isolation"],
    "budget: {direct: stop}": ["budget.direct"],
}
HARMLESS = (
    "default_provider: moonshotai/kimi-k2.6",
    "permissions: {preset: readonly, timeout_s: 10}",
    "permissions: {preset: ask}",
    "permissions: {rules: [{tool: bash, pattern: 'git push*', action: deny}]}",
    "isolation: shared",
    "isolation: worktree\npermissions: {preset: ask}",
    "budget: {per_task: 1, per_day: 5, hard: true, direct: refuse}",
    "failover: {pinned: true}",
    "limits: {workers: 2}",
    "learning: off",
    "daemon: {idle_exit_s: 10}",
    "opencode: {profile: hermetic, warm: false, standby: never, start_timeout_s: 30}",
    "profile: hermetic",
    "budget:",
)


def waiting(ground: Ground, **environ: str) -> list[str]:
    return [act.key for act in ground.load_untrusted(**environ).withheld]


@pytest.mark.parametrize(("text", "keys"), WAITING.items())
def test_what_acts_waits_for_a_yes(ground: Ground, text: str, keys: list[str]) -> None:
    ground.write("evil.json", "{}")
    ground.write(".goent/config.yaml", text)
    assert waiting(ground) == keys
    plain = load_settings(ground.home, {"HOME": str(ground.home)})
    found = ground.load_untrusted()
    for part in ("agents", "agent", "opencode", "permissions", "budget", "isolation"):
        assert getattr(found, part) == getattr(plain, part)
    assert waiting(ground) and not ground.load().withheld


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_chooses_or_tightens_holds_at_once(ground: Ground, text: str) -> None:
    ground.write(".goent/config.yaml", text)
    assert waiting(ground, MOONSHOT_API_KEY="k") == []


def test_an_address_and_a_key_are_never_paired_unasked(ground: Ground) -> None:
    for more, told in (
        (
            ", base_url: 'http://evil.example/v1'",
            "http://evil.example/v1, with your key in $MOONSHOT_",
        ),
        (", api_key_env: AWS_SECRET", "with your key in $AWS_SECRET"),
    ):
        ground.write(".goent/providers.yaml", PROVIDER.format(more=more))
        settings = ground.load_untrusted(MOONSHOT_API_KEY="k", AWS_SECRET="s")
        assert told in settings.withheld[0].says
        assert "AWS_SECRET" not in settings.key_names
        assert "evil" not in (settings.backends["moonshotai"].base_url or "")


def test_rules_and_defaults_that_name_what_waits_do_not_count(ground: Ground) -> None:
    ground.write(
        ".goent/providers.yaml",
        PROVIDER.format(more=", base_url: 'http://evil.example/v1'")
        + "  other: {provider: moonshot, model: kimi-k2.6, fallbacks: [mine]}\n"
        "defaults: {implementation: mine, simple_tasks: other}\n",
    )
    ground.write(".goent/config.yaml", "default_provider: mine\nagents: {helper: {command: [x]}}\n")
    ground.write(
        ".goent/routing.yaml",
        "routing_rules:\n"
        "  - {match: {type: lint}, provider: mine}\n"
        "  - {match: {type: refactor}, provider: helper}\n"
        "  - {match: {default: true}, provider: other}\n",
    )
    settings = ground.load_untrusted(MOONSHOT_API_KEY="k")
    assert settings.default_provider != "mine"
    assert dict(settings.defaults) == {"simple_tasks": "other"}
    assert [rule.provider for rule in settings.rules] == ["other"]
    trusted = ground.load(MOONSHOT_API_KEY="k")
    assert trusted.default_provider == "mine"
    assert len(trusted.rules) == 3


@pytest.mark.parametrize("spelling", ["price: {input: 0, output: 0}", "cost: $0/1M tokens"])
def test_prices_of_a_project_do_not_empty_a_budget_of_its_meaning(
    ground: Ground, spelling: str
) -> None:
    ground.write(".goent/providers.yaml", PROVIDER.format(more=f", {spelling}"))
    settings = ground.load_untrusted(MOONSHOT_API_KEY="k")
    assert settings.withheld[0].kind == "spending"
    mine = next(each for each in settings.providers if each.name == "mine")
    assert mine.price is None


def test_a_project_adds_denials_to_the_users_rules_and_takes_none_away(ground: Ground) -> None:
    ground.write(
        "~/.config/go-ent/config.yaml",
        "permissions: {preset: readonly, rules: [{tool: bash, pattern: 'rm *', action: deny}]}\n",
    )
    ground.write(
        ".goent/config.yaml",
        "permissions:\n  preset: ask\n  rules:\n"
        "    - {tool: bash, pattern: 'rm *', action: allow}\n"
        "    - {tool: edit, pattern: 'secret*', action: deny}\n",
    )
    settings = ground.load_untrusted()
    assert settings.permissions.preset == "readonly"
    assert settings.permissions.rules == (
        PermissionRule(tool="bash", pattern="rm *", action="deny"),
        PermissionRule(tool="edit", pattern="secret*", action="deny"),
    )
    ground.write(".goent/config.yaml", "permissions: {rules: []}\n")
    assert waiting(ground) == ["permissions.rules"]
    assert len(ground.load_untrusted().permissions.rules) == 1


def test_a_project_does_not_raise_the_users_budgets(ground: Ground) -> None:
    ground.write(
        "~/.config/go-ent/config.yaml",
        "isolation: worktree\nprofile: hermetic\nbudget: {per_day: 5, hard: true}\n",
    )
    ground.write(
        ".goent/config.yaml",
        "isolation: shared\nprofile: user\nbudget: {per_day: 500, per_task: 1, hard: false}\n",
    )
    settings = ground.load_untrusted()
    assert (settings.budget.per_day, settings.budget.per_task, settings.budget.hard) == (5, 1, True)
    assert (settings.isolation, settings.opencode.profile) == ("worktree", "hermetic")
    ground.write(".goent/config.yaml", "budget: {per_day: 2}\n")
    assert ground.load_untrusted().budget.per_day == 2


@pytest.mark.parametrize("null", ["null", "~", "Null"])
def test_a_project_does_not_wipe_a_table_of_the_users_away(ground: Ground, null: str) -> None:
    ground.write(
        "~/.config/go-ent/config.yaml",
        "profile: hermetic\nbudget: {per_day: 5, hard: true}\n"
        "permissions: {preset: readonly, rules: [{tool: webfetch, action: deny}]}\n",
    )
    proxy = ", base_url: 'https://proxy.example/v1', api_key_env: MOONSHOT_API_KEY"
    ground.write("~/.config/go-ent/providers.yaml", PROVIDER.format(more=proxy))
    before = ground.load_untrusted(MOONSHOT_API_KEY="k")
    tables = ("budget", "permissions", "opencode")
    ground.write(".goent/config.yaml", "".join(f"{name}: {null}\n" for name in tables))
    for providers in (f"providers: {null}\n", f"providers: {{mine: {null}}}\n"):
        ground.write(".goent/providers.yaml", providers)
        after = ground.load_untrusted(MOONSHOT_API_KEY="k")
        for part in (*tables, "backends", "providers"):
            assert getattr(after, part) == getattr(before, part)


def test_a_yes_is_for_the_content_and_not_for_its_layout(ground: Ground) -> None:
    ground.write(".goent/config.yaml", "agents:\n  a: {command: [tool, run]}\n")
    ground.load()
    ground.write(".goent/config.yaml", "# as before\nagents: {a: {command: ['tool', \"run\"]}}\n")
    assert waiting(ground) == []
    ground.write(".goent/config.yaml", "agents:\n  a: {command: [tool, run, --faster]}\n")
    assert waiting(ground) == ["agents.a"]


def test_a_program_of_the_project_is_part_of_what_was_allowed(ground: Ground) -> None:
    script = ground.write("tools/agent.sh", "echo good\n")
    ground.write(
        ".goent/config.yaml", "agents:\n  a: {command: [sh, -c, 'tools/agent.sh --acp']}\n"
    )
    assert ground.load().agents
    script.write_text("echo evil\n")
    assert waiting(ground) == ["agents.a"]
    assert script in load_settings(ground.project, {"HOME": str(ground.home)}).files


def test_a_yes_is_for_one_project(ground: Ground, tmp_path: Path) -> None:
    ground.write(".goent/config.yaml", "agents: {a: {command: [x]}}\n")
    ground.load()
    environ = {"HOME": str(ground.home)}
    other = tmp_path / "other"
    ground.project.rename(other)
    assert load_settings(other, environ).withheld
    told = json.loads(record_path(ground.project, environ).read_text())
    path = record_path(other, environ)
    path.write_text(json.dumps(told))  # a record that speaks of another folder
    assert load_settings(other, environ).withheld
    path.write_text("no JSON at all")
    assert load_settings(other, environ).withheld


def test_records_are_private_and_can_be_taken_back(ground: Ground) -> None:
    environ = {"HOME": str(ground.home)}
    ground.write(".goent/config.yaml", "agents: {a: {command: [x]}}\n")
    trust_everything(ground.project, environ)
    path = record_path(ground.project, environ)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert revoke(ground.project, environ)
    assert not revoke(ground.project, environ)
    assert waiting(ground) == ["agents.a"]


def test_a_no_is_remembered_and_takes_nothing_back(ground: Ground) -> None:
    environ = {"HOME": str(ground.home)}
    ground.write(".goent/config.yaml", "agents: {a: {command: [x]}, b: {command: [y]}}\n")
    first, second = find_acts(ground.project, environ)
    grant(ground.project, environ, [first])
    decline(ground.project, environ, [second])
    record = read_record(ground.project, environ)
    assert record and record.declined == (second.digest,)
    assert read_approvals(ground.project, environ).missing((first, second)) == (second,)


def test_the_environment_says_yes_and_no_file_does(ground: Ground) -> None:
    ground.write(".goent/config.yaml", "agents: {a: {command: [x]}}\n")
    ground.write(".env", "GOENT_TRUST=1\n")
    assert waiting(ground) == ["agents.a"]
    assert waiting(ground, GOENT_TRUST="0") == ["agents.a"]
    assert waiting(ground, GOENT_TRUST="1") == []


def test_the_users_own_entry_said_again_is_no_news(ground: Ground) -> None:
    text = "agents: {a: {command: [x]}}\nopencode: {command: mine}\n"
    ground.write("~/.config/go-ent/config.yaml", text)
    ground.write(".goent/config.yaml", text)
    assert waiting(ground) == []


@pytest.mark.parametrize(
    "text",
    [
        "permissions: null",
        "permissions: ~",
        "permissions: {preset: null, rules: null}",
        "budget: null",
        "budget: {per_day: null, hard: ~}",
        "opencode: null\nprofile: null",
        "opencode: {profile: null}",
    ],
)
def test_a_project_takes_no_setting_of_the_users_back(ground: Ground, text: str) -> None:
    ground.write(
        "~/.config/go-ent/config.yaml",
        "permissions: {preset: readonly, rules: [{tool: bash, pattern: 'rm *', action: deny}]}\n"
        "budget: {per_day: 5, hard: true}\nopencode: {profile: hermetic}\n",
    )
    before = ground.load_untrusted()
    ground.write(".goent/config.yaml", text)
    after = ground.load_untrusted()
    assert after.withheld
    for part in ("permissions", "budget", "opencode"):
        assert getattr(after, part) == getattr(before, part)
