"""The state of a version as it was recorded, and how a copy of it comes to a test's own home."""

import json
import shutil
from pathlib import Path
from typing import Any

from real_git import Repository
from sql_dump import moved, restore
from world import World

from goent.config.trust_survey import trust_everything
from goent.system.project_folders import project_key, state_dir

ROOT = Path("/tmp/goent-v01")  # where it was recorded: `home`, and the projects
KEYS = {"project": "project-5dd30d18b4b2", "killed": "killed-6408276ea54b"}
STATE = ("ledger", "history", "health", "calibration", "sessions")
AGENT_HOME = "agent-home/.local/state/go-ent"  # a hermetic agent's own state
Answers = dict[str, Any]


class Recorded:
    """One version's folder, as `state_recorder` left it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def text(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")

    def database(self, name: str, folder: Path) -> Path:
        """The file, as it was, in a folder of the test's."""
        restored = folder / f"{name}.db"
        restore(self.text(f"{name}.sql"), restored)
        return restored

    def answers(self) -> Answers:
        return json.loads(self.text("answers.json"))

    def place(self, world: World) -> Answers:
        """Put all of it into the world, which nobody uses yet; its folder is in the recorded one's place.

        The answers speak of that folder, too.
        """
        top = world.project.parent
        names = {str(ROOT): str(top)}
        names |= {key: project_key(top / name) for name, key in KEYS.items()}
        for path, database in self._databases(world).items():
            restore(self.text(database), path)
            for old, new in names.items():
                moved(path, old, new)
        self._place_project(world, names)
        killed = top / "killed" / ".goent"
        killed.mkdir(parents=True)
        for name in ("config.yaml", "providers.yaml"):
            shutil.copy(world.project / ".goent" / name, killed / name)
        call_directly(world)
        for name in KEYS:
            trust_everything(top / name, world.env)
        return json.loads(_renamed(self.text("answers.json"), names))

    def _databases(self, world: World) -> dict[Path, str]:
        state = state_dir(world.env)
        found = {state / f"{name}.db": f"{name}.sql" for name in STATE}
        for name in KEYS:
            own = state / "projects" / project_key(world.project.parent / name)
            found[own / "journal.db"] = f"journal-{name}.sql"
            found[own / AGENT_HOME / "sessions.db"] = f"sessions-{name}.sql"
        return found

    def _place_project(self, world: World, names: dict[str, str]) -> None:
        repository = Repository(world.project)
        repository.git("init", "--quiet", "-b", "main")
        bundle = self.folder / "project.bundle"
        repository.git("fetch", "--quiet", "--update-head-ok", bundle, "+refs/heads/*:refs/heads/*")
        repository.git("reset", "--quiet", "--hard", "main")
        own = (world.project / ".goent" / "config.yaml").read_bytes()
        for path in (path for path in (self.folder / "project").rglob("*") if path.is_file()):
            there = world.project / path.relative_to(self.folder / "project")
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_text(_renamed(path.read_text(encoding="utf-8"), names), encoding="utf-8")
        (world.project / ".goent" / "config.yaml").write_bytes(own)


def call_directly(world: World) -> None:
    """go-ent holds no key of the backend `local`, so that OpenCode calls it by itself."""
    path = world.home / ".config" / "opencode" / "opencode.json"
    known = json.loads(path.read_text())
    del known["provider"]["local"]["options"]["apiKey"]
    path.write_text(json.dumps(known))


def _renamed(text: str, names: dict[str, str]) -> str:
    for old, new in names.items():
        text = text.replace(old, new)
    return text
