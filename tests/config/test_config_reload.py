from pathlib import Path

import pytest

from goent.config.reload import Configuration
from goent.domain.errors import ConfigError


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home")}


def write(project: Path, text: str) -> None:
    (project / ".goent").mkdir(exist_ok=True)
    (project / ".goent" / "config.yaml").write_text(text)


def test_a_changed_file_is_read_again(tmp_path: Path, environ: dict[str, str]) -> None:
    configuration = Configuration(tmp_path)
    assert configuration.current(environ).limits.workers == 20
    write(tmp_path, "limits: {workers: 3}")
    assert configuration.current(environ).limits.workers == 3


def test_an_unchanged_file_is_not(tmp_path: Path, environ: dict[str, str]) -> None:
    write(tmp_path, "limits: {workers: 3}")
    configuration = Configuration(tmp_path)
    assert configuration.current(environ) is configuration.current(environ)


def test_a_mistake_does_not_undo_what_held(tmp_path: Path, environ: dict[str, str]) -> None:
    write(tmp_path, "limits: {workers: 3}")
    configuration = Configuration(tmp_path)
    configuration.current(environ)
    write(tmp_path, "limits: {workers: many}")
    assert configuration.current(environ).limits.workers == 3
    assert "config.yaml:1" in str(configuration.trouble)
    write(tmp_path, "limits: {workers: 4}")
    assert configuration.current(environ).limits.workers == 4
    assert configuration.trouble is None


def test_without_anything_that_held_the_mistake_is_told(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    write(tmp_path, "limits: {wrkers: 3}")
    with pytest.raises(ConfigError, match="wrkers"):
        Configuration(tmp_path).current(environ)


def test_a_new_key_in_the_environment_is_seen(tmp_path: Path, environ: dict[str, str]) -> None:
    configuration = Configuration(tmp_path)
    assert "anthropic" not in configuration.current(environ).backends
    known = {**environ, "ANTHROPIC_API_KEY": "sk-x"}
    assert "anthropic" in configuration.current(known).backends
