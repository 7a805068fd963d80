from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest
from eval_opencode import Evaluation, evaluation

from goent.upstream import tries


@pytest.fixture(scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Evaluation]:
    """One server for all tests of a file: a start takes seconds."""
    async with evaluation(tmp_path_factory.mktemp("evals")) as built:
        yield built


@pytest.fixture(scope="module", autouse=True)
def soon_asked_again() -> Generator[None]:
    """A provider that has failed is asked as often as ever, within a second or so."""
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(tries, "GROWTH", 0.1)
        yield


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    """The attempt's own directory."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder
