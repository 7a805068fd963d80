"""What cannot be served as asked is refused before anything begins."""

import pytest
from scripted_project import OpenProject

from goent.domain.errors import RequestError
from goent.testing.driver import ScriptedDriver

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
        ({"task": "x", "colour": "red"}, "there is no argument 'colour'"),
        ({"task": "x", "cwd": "a\0b"}, "cannot be used"),
        ({"task": "x", "cwd": "~nobody-here/x"}, "cannot be used"),
        ({"task": "x", "files": ["f" * 5000]}, "do not exist"),
        ({}, "missing required field `task`"),
        ({"task": "x", "permissions": "root"}, "'root' is none of readonly, ask"),
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
