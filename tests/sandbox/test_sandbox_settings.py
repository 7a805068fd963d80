"""The `sandbox:` block, as it is written."""

from pathlib import Path

import pytest

from goent.config.settings_loader import load_settings
from goent.domain.errors import ConfigError
from goent.domain.sandbox_port import SandboxSettings


def read(folder: Path, text: str) -> SandboxSettings:
    file = folder / ".config" / "go-ent" / "config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"sandbox: {text}\n")
    (folder / "project").mkdir(exist_ok=True)
    return load_settings(folder / "project", {"HOME": str(folder)}).sandbox


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("off", "level", "off"),
        ("{level: off}", "level", "off"),
        ("{level: landlock}", "level", "landlock"),
        ("{network: off}", "network", "off"),
        ("{network: gateway}", "network", "gateway"),
        ("{read: listed}", "read", "listed"),
    ],
)
def test_what_is_written_is_meant(tmp_path: Path, text: str, field: str, value: str) -> None:
    assert getattr(read(tmp_path, text), field) == value


def test_relative_entries_and_a_tilde_are_below_the_home(tmp_path: Path) -> None:
    found = read(tmp_path, "{writable: [~/.npm, cache, /srv/x], readable: [~/data]}")
    assert found.writable == (tmp_path / ".npm", tmp_path / "cache", Path("/srv/x"))
    assert found.readable == (tmp_path / "data",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("on", "sandbox: expected off, or a table"),
        ("{level: best}", "sandbox.level: unknown level 'best'; one of auto, landlock, off"),
        ("{network: none}", "sandbox.network: unknown network 'none'; one of all, gateway, off"),
        ("{write: [x]}", "sandbox.write: unknown key; did you mean 'writable'?"),
        ("{writable: [$HOME/x]}", "sandbox.writable[0]: '$HOME/x' is not expanded here; write ~/"),
        ("{readable: [a, ~you/x]}", "sandbox.readable[1]: '~you/x' is not expanded here; write ~/"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as told:
        read(tmp_path, text)
    assert f"~/.config/go-ent/config.yaml:1: {message}" in str(told.value)
