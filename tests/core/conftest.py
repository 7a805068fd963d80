from pathlib import Path

import pytest
from real_git import Repository, a_repository
from scripted_project import OpenProject, project_opener


@pytest.fixture
def open_project(tmp_path: Path) -> OpenProject:
    return project_opener(tmp_path)


@pytest.fixture
def repository(open_project: OpenProject, tmp_path: Path) -> Repository:
    """The project as a git repository with one commit."""
    del open_project  # it makes the folder
    return a_repository(tmp_path / "project", files={"app.txt": "one\ntwo\nthree\n"})
