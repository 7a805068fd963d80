import os
from pathlib import Path

import pytest
from ground import Ground

from goent.config.settings_loader import LiveSettings
from goent.config.trust_survey import trust_everything
from goent.domain.errors import ConfigError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def write(project: Path, text: str) -> None:
    (project / ".goent").mkdir(exist_ok=True)
    (project / ".goent" / "config.yaml").write_text(text)


def test_a_changed_file_is_read_again(tmp_path: Path, environ: dict[str, str]) -> None:
    configuration = LiveSettings(tmp_path)
    assert configuration.current(environ).limits.workers == 20
    write(tmp_path, "limits: {workers: 3}")
    assert configuration.current(environ).limits.workers == 3


def test_an_unchanged_file_is_not(tmp_path: Path, environ: dict[str, str]) -> None:
    write(tmp_path, "limits: {workers: 3}")
    configuration = LiveSettings(tmp_path)
    assert configuration.current(environ) is configuration.current(environ)


def test_a_mistake_does_not_undo_what_held(tmp_path: Path, environ: dict[str, str]) -> None:
    write(tmp_path, "limits: {workers: 3}")
    configuration = LiveSettings(tmp_path)
    configuration.current(environ)
    write(tmp_path, "limits: {workers: many}")
    assert configuration.current(environ).limits.workers == 3
    assert "config.yaml:1" in str(configuration.error)
    write(tmp_path, "limits: {workers: 4}")
    assert configuration.current(environ).limits.workers == 4
    assert configuration.error is None


def test_without_anything_that_held_the_mistake_is_told(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    write(tmp_path, "limits: {wrkers: 3}")
    with pytest.raises(ConfigError, match="wrkers"):
        LiveSettings(tmp_path).current(environ)


def test_a_new_key_in_the_environment_is_seen(tmp_path: Path, environ: dict[str, str]) -> None:
    configuration = LiveSettings(tmp_path)
    assert "anthropic" not in configuration.current(environ).backends
    known = {**environ, "ANTHROPIC_API_KEY": "sk-x"}
    assert "anthropic" in configuration.current(known).backends


@pytest.mark.spec("P20")
def test_a_mistake_in_the_rules_is_named_and_the_last_good_ones_stay_in_force(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    rules = tmp_path / ".goent" / "routing.yaml"
    rules.parent.mkdir()
    rules.write_text("routing_rules: [{match: {type: fix}, method: cli}]")
    configuration = LiveSettings(tmp_path)
    configuration.check(environ)
    rules.write_text("routing_rules:\n  - {match: {type: fixx}, method: cli}\n")
    configuration.check(environ)  # new work is taken
    assert configuration.current(environ).rules[0].types == ("fix",)
    assert "routing.yaml:2: routing_rules[0].match.type: unknown type 'fixx'" in str(
        configuration.error
    )
    rules.write_text("routing_rules: [{match: {type: test}, method: cli}]")
    assert configuration.current(environ).rules[0].types == ("test",)
    assert configuration.error is None


def test_a_mistake_beside_the_rules_stops_new_work(tmp_path: Path, environ: dict[str, str]) -> None:
    configuration = LiveSettings(tmp_path)
    configuration.check(environ)
    write(tmp_path, "limits: {workers: many}")
    (tmp_path / ".goent" / "routing.yaml").write_text("rules: 3")
    with pytest.raises(ConfigError, match="workers"):
        configuration.check(environ)


def test_a_program_that_was_allowed_and_is_another_now_is_found_out(ground: Ground) -> None:
    """Also if whoever changed it kept its size and set its time back."""
    script = ground.write("agent.sh", "echo good\n")
    ground.write(".goent/config.yaml", "agents: {helper: {command: [sh, agent.sh]}}\n")
    environ = {"HOME": str(ground.home)}
    trust_everything(ground.project, environ)
    configuration = LiveSettings(ground.project)
    assert "helper" in configuration.current(environ).agents
    before = script.stat()
    script.write_text("echo evil\n")
    os.utime(script, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not configuration.current(environ).agents
