"""A home and a project with nothing in them, and what go-ent makes of them."""

from pathlib import Path

import pytest

from goent.config.settings_loader import load_settings
from goent.config.trust_survey import trust_everything
from goent.domain.errors import ConfigError
from goent.domain.settings import Settings


class Ground:
    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = root / "project"
        self.home.mkdir()
        self.project.mkdir()

    def write(self, name: str, text: str) -> Path:
        """`~/…` is below the home, everything else below the project."""
        path = self.home / name[2:] if name.startswith("~/") else self.project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def load(self, **environ: str) -> Settings:
        """As the user's own project, which they have said yes to."""
        told = {"HOME": str(self.home), **environ}
        trust_everything(self.project, told)
        return load_settings(self.project, told)

    def load_untrusted(self, **environ: str) -> Settings:
        """As a project that nobody has looked at."""
        return load_settings(self.project, {"HOME": str(self.home), **environ})

    def mistakes(self, **environ: str) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            self.load(**environ)
        return str(caught.value).splitlines()
