"""What cannot be served as asked is refused before anything begins."""

from pathlib import Path

import pytest
from scripted_project import OpenProject

from goent.domain.errors import RequestError
from goent.domain.requests import SpawnRequest
from goent.domain.settings import OpenCodeSettings, Settings
from goent.domain.types import Preset, Provider, Route
from goent.testing.driver import ScriptedDriver
from goent.workers.task_intake import spawn_warnings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "  "}, "the task is empty"),
        ({"task": "x", "cwd": "nowhere"}, "nowhere' does not exist"),
        ({"task": "x", "cwd": "a-file"}, "a-file' is not a directory"),
        ({"task": "x", "files": ["gone.py"]}, "gone.py"),
        ({"task": "x", "provider": "nope"}, "unknown provider 'nope'; there are: glm"),
        ({"task": "x", "method": "api"}, "method 'api' is not available"),
        ({"task": "x", "temperature": 0}, "temperature is for a model that is called directly"),
        ({"task": "x", "temperature": 9}, "temperature"),
        ({"task": "x", "isolation": "worktree"}, "is in no git repository"),
        ({"task": "x", "colour": "red"}, "colour: unknown argument; one of task, provider"),
        ({"task": "x", "cwd": "a\0b"}, "cannot be used"),
        ({"task": "x", "cwd": "~nobody-here/x"}, "cannot be used"),
        ({"task": "x", "files": ["f" * 5000]}, "do not exist"),
        ({}, "task: is missing"),
        (
            {"task": "x", "permissions": "root"},
            "permissions: unknown value 'root'; one of readonly, ask",
        ),
    ],
)
async def test_a_task_that_cannot_be_served_is_refused_with_the_reason(
    open_project: OpenProject, arguments: dict[str, object], message: str
) -> None:
    async with open_project(ScriptedDriver(lambda _: [])) as project:
        (project.folder / "a-file").touch()
        with pytest.raises(RequestError) as refusal:
            await project.ask("worker_spawn", **arguments)
        assert message in str(refusal.value)
        assert project.feed.views == {}, "nothing was begun"


@pytest.mark.parametrize(("preset", "warns"), [("readonly", True), ("ask", True), ("auto", False)])
async def test_a_server_of_somebody_else_is_warned_of(
    tmp_path: Path, preset: Preset, *, warns: bool
) -> None:
    glm = Provider(name="glm", backend="moonshot", model="glm-4")
    route = Route(provider=glm, method="serve", reason="asked for")
    lent = OpenCodeSettings(serve_url="http://127.0.0.1:4096")
    settings = Settings(project=tmp_path, opencode=lent)
    told = [*spawn_warnings(SpawnRequest(task="x"), route, preset, tmp_path, settings)]
    assert ["has its own permissions" in warning for warning in told] == [True] * warns
