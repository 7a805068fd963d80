from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from eval_opencode import Evaluation, evaluation


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Evaluation]:
    """One server for all tests of a file: a start takes seconds."""
    async with evaluation(tmp_path_factory.mktemp("evals")) as built:
        yield built


@pytest.fixture(scope="module", autouse=True)
def everywhere(soon_asked_again: None) -> None:
    """Models fail in every file here."""


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where attempts have their directories: they share a server that can write there."""
    if "shared" not in request.fixturenames:
        return tmp_path
    home: Evaluation = request.getfixturevalue("shared")
    folder = home.workspaces / tmp_path.name
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def cwd(place: Path) -> Path:
    """The attempt's own directory."""
    folder = place / "work"
    folder.mkdir()
    return folder
