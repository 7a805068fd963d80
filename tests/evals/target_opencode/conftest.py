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
def cwd(tmp_path: Path) -> Path:
    """The attempt's own directory."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder
