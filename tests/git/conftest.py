from pathlib import Path

import pytest
from real_git import OrderFor, Repository, a_repository, orders_for

from goent.git.git_workspaces import GitWorkspaces


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return a_repository(tmp_path / "repo", files={"src/app.py": "one\ntwo\n"})


@pytest.fixture
def spaces(tmp_path: Path, repository: Repository) -> GitWorkspaces:
    return GitWorkspaces(tmp_path / "state", environ=lambda: repository.environ)


@pytest.fixture
def order(repository: Repository) -> OrderFor:
    return orders_for(repository.top)
