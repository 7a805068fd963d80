from pathlib import Path

import pytest
from scripted_project import OpenProject, project_opener


@pytest.fixture
def open_project(tmp_path: Path) -> OpenProject:
    return project_opener(tmp_path)
