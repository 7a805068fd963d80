"""Each run of a project has a folder of its own, however many begin at once."""

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from goent.domain.errors import ConfigError
from goent.evals.runner.run_locations import RUNS_FOLDER, new_run_folder


def test_runs_that_begin_at_once_are_given_folders_of_their_own(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(new_run_folder, [tmp_path] * 24))
    assert len(set(made)) == 24
    assert {folder.parent for folder in made} == {tmp_path / RUNS_FOLDER}
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in made} == {0o700}
    assert (tmp_path / RUNS_FOLDER / ".gitignore").read_text() == "*\n"


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / ".goent").write_text("a file")
    with pytest.raises(ConfigError, match=r"evals' cannot be written: .*; name another folder"):
        new_run_folder(tmp_path)
