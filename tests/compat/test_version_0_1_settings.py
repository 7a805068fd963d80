"""Every setting that version 0.1 knew is understood."""

import shutil
from decimal import Decimal
from pathlib import Path

import msgspec
from version_0_1 import FOLDER

from goent.config.settings_loader import load_settings
from goent.config.trust_survey import trust_everything
from goent.evals.files.target_reader import load_targets


def a_project(tmp_path: Path, *names: str) -> tuple[Path, dict[str, str]]:
    """With these files of the full example, and the user's own."""
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home / ".config" / "go-ent", project / ".goent"):
        folder.mkdir(parents=True)
    full = FOLDER / "settings" / "full"
    for name in names:
        written = "routing.yaml" if name == "routing_rules.yaml" else name
        shutil.copy(full / name, project / ".goent" / written)
    shutil.copy(full / "user_config.yaml", home / ".config" / "go-ent" / "config.yaml")
    shutil.copy(full / "opencode.json", home / "opencode.json")
    environ = {"HOME": str(home), "WORDS": "some words of ours"}
    trust_everything(project, environ)
    return project, environ


def test_the_settings_that_init_wrote_change_nothing(tmp_path: Path) -> None:
    project = tmp_path / "project"
    shutil.copytree(FOLDER / "settings" / "init", project / ".goent")
    settings = load_settings(project, {"HOME": str(tmp_path)})
    assert [path.name for path in settings.files] == [
        "providers.yaml",
        "config.yaml",
        "routing.yaml",
    ]
    empty = tmp_path / "empty"
    empty.mkdir()
    plain = load_settings(empty, {"HOME": str(tmp_path)})
    assert msgspec.structs.replace(settings, project=empty, files=()) == plain


def test_every_setting_of_the_configuration_is_understood(tmp_path: Path) -> None:
    project, environ = a_project(tmp_path, "config.yaml", "providers.yaml", "routing.yaml")
    settings = load_settings(project, environ)
    assert not settings.warnings
    permissions, limits, opencode = settings.permissions, settings.limits, settings.opencode
    assert (permissions.preset, permissions.timeout_s, len(permissions.rules)) == ("edit", 120, 3)
    assert (settings.isolation, settings.learning, settings.failover_pinned) == (
        "worktree",
        False,
        True,
    )
    budget = settings.budget
    assert (budget.per_task, budget.per_day, budget.per_project) == (
        Decimal("0.5"),
        Decimal(20),
        Decimal(100),
    )
    assert (budget.hard, budget.direct) == (True, "stop")
    assert (limits.workers, limits.idle_close_s, limits.cancel_grace_s) == (7, 900, 5)
    assert (limits.turn_timeout_s, limits.stall_s, limits.verify_s) == (1200, 90, 300)
    assert settings.agents["gemini"].command == ("gemini", "--acp")
    assert settings.agents["gemini"].start_timeout_s == 30
    assert [str(path)[-6:] for path in settings.agent.writable] == [".cache", "builds"]
    assert settings.daemon.idle_exit_s == 600
    assert (opencode.command, opencode.profile, opencode.project_config) == (
        "opencode",
        "hermetic",
        True,
    )
    assert (opencode.warm, opencode.standby, opencode.start_timeout_s) == (False, "always", 45)
    assert opencode.serve_url == "http://127.0.0.1:4096"
    assert opencode.serve_password_env == "OPENCODE_SERVER_PASSWORD"
    assert opencode.config_path == tmp_path / "home" / "opencode.json"


def test_every_setting_of_providers_and_rules_is_understood(tmp_path: Path) -> None:
    project, environ = a_project(tmp_path, "config.yaml", "providers.yaml", "routing.yaml")
    settings = load_settings(project, environ)
    providers = {provider.name: provider for provider in settings.providers}
    assert settings.written == ("glm", "local", "cheap", "thousand", "worded", "short")
    assert {"gemini", "gemini/gemini-3-flash", "other", "theirs/first"} <= set(providers)
    glm = providers["glm"]
    assert (glm.method, glm.context_limit, glm.fallbacks) == ("serve", 204800, ("local", "cheap"))
    assert glm.price and glm.price.cache_write == Decimal("0.7")
    assert (glm.limits.concurrency, glm.limits.rpm, glm.limits.tpm) == (8, 60, 100000)
    cheap = [providers[name].price for name in ("cheap", "thousand", "worded")]
    assert [price and (price.input, price.output) for price in cheap] == [
        (Decimal("0.01"), Decimal("0.01"))
    ] * 3
    assert settings.backends["zai"].key_env == "MY_ZAI_KEY"
    assert settings.default_provider == "glm"
    assert settings.defaults == {
        "implementation": "glm",
        "large_context": "short",
        "simple_tasks": "local",
        "documentation": "cheap",
    }
    health = settings.health
    assert (health.max_retries, health.retry_delay, health.probe) == (5, 10, True)
    large, cheap_words = settings.rules
    assert (large.id, large.priority, large.min_files, large.min_context) == (
        "large-context",
        950,
        4,
        50000,
    )
    assert (large.types, large.keywords) == (("refactor", "implement"), ("rename", "extract"))
    assert (cheap_words.max_cost, cheap_words.provider) == (0.05, "cheap")


def test_the_other_shape_of_rules_is_understood(tmp_path: Path) -> None:
    project, environ = a_project(tmp_path, "config.yaml", "providers.yaml", "routing_rules.yaml")
    lint, fix, rest = load_settings(project, environ).rules
    assert (lint.types, lint.complexity, lint.method) == (("format",), ("trivial",), "cli")
    assert (fix.types, fix.min_files, fix.min_context) == (("fix",), 4, 20001)
    assert (fix.provider, fix.model) == ("gemini", "gemini-3-flash")
    assert (rest.types, rest.provider) == ((), "glm")


def test_every_setting_of_targets_is_understood(tmp_path: Path) -> None:
    project, environ = a_project(tmp_path, "targets.yaml")
    targets = load_targets(project, environ)
    kinds = {name: target.kind for name, target in targets.items()}
    assert kinds == {
        **dict.fromkeys(("coder", "alone", "theirs", "default"), "opencode"),
        **dict.fromkeys(("worker", "judge", "best"), "goent"),
        **dict.fromkeys(("command", "answering"), "cli"),
        **dict.fromkeys(("fixed", "late"), "mock"),
        "recorded": "replay",
    }
    coder = targets["coder"]
    assert (coder.workers, coder.fallbacks, coder.grader_target) == (
        2,
        ("recorded", "fixed"),
        "judge",
    )
    assert (coder.retry.max_retries, coder.retry.initial_delay_s, coder.retry.factor) == (
        3,
        0.5,
        1.5,
    )
    assert coder.settings["env"] == {"WORDS": "some words of ours"}
