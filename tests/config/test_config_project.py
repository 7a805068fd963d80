"""Where a project begins, and whose folders are safe to use."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from goent.system.project_folders import (
    UnsafeFolder,
    config_dir,
    find_project,
    log_path,
    project_key,
    runtime_dir,
    state_dir,
)


@pytest.fixture
def runtime(tmp_path: Path) -> dict[str, str]:
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    return {"XDG_RUNTIME_DIR": str(folder), "HOME": str(tmp_path)}


def made(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_nearest_folder_with_a_mark_is_the_project(tmp_path: Path) -> None:
    made(tmp_path / ".goent")
    inner = made(tmp_path / "inner" / ".goent").parent
    checkout = made(inner / "deep" / ".git").parent
    assert find_project(made(inner / "plain")) == inner
    assert find_project(checkout) == checkout, "a stray .goent above swallows no checkout"


def test_without_one_the_top_of_the_checkout_is_the_project(tmp_path: Path) -> None:
    deep = made(tmp_path / "repo" / "a" / "b")
    made(tmp_path / "repo" / ".git")
    assert find_project(deep) == tmp_path / "repo"


def test_a_worktree_has_a_file_in_place_of_the_git_folder(tmp_path: Path) -> None:
    deep = made(tmp_path / "tree" / "a")
    (tmp_path / "tree" / ".git").write_text("gitdir: elsewhere\n", encoding="utf-8")
    assert find_project(deep) == tmp_path / "tree"


def test_without_either_the_folder_itself_is_the_project(tmp_path: Path) -> None:
    here = made(tmp_path / "here")
    assert find_project(here) == here


def test_a_link_to_a_project_is_that_project(tmp_path: Path) -> None:
    made(tmp_path / "real" / ".goent")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find_project(tmp_path / "link") == tmp_path / "real"
    assert project_key(tmp_path / "link") == project_key(tmp_path / "real")


def test_a_key_is_readable_stable_and_fit_for_a_file(tmp_path: Path) -> None:
    key = project_key(tmp_path / "my repo (ä)")
    assert key.startswith("my-repo-")
    assert key == project_key(tmp_path / "my repo (ä)")
    assert key != project_key(tmp_path / "other" / "my repo (ä)")
    assert key.replace("-", "").isalnum()
    assert len(project_key(tmp_path / ("x" * 200))) < 40
    assert project_key(Path("/")).isalnum()


def test_the_runtime_folder_is_ours_alone(runtime: dict[str, str]) -> None:
    folder = runtime_dir("repo-1a2b", runtime)
    assert folder == Path(runtime["XDG_RUNTIME_DIR"]) / "go-ent" / "repo-1a2b"
    assert (mode(folder), mode(folder.parent)) == (0o700, 0o700)
    assert runtime_dir("repo-1a2b", runtime) == folder


@pytest.mark.parametrize("given", ["", "relative", "/nowhere/at/all"])
def test_without_a_runtime_folder_the_temporary_one_serves(tmp_path: Path, given: str) -> None:
    environ = {"XDG_RUNTIME_DIR": given, "TMPDIR": str(tmp_path)}
    folder = runtime_dir("repo-1a2b", environ)
    assert folder == tmp_path / f"go-ent-{os.geteuid()}" / "repo-1a2b"
    assert mode(folder.parent) == 0o700


def test_a_link_is_refused(runtime: dict[str, str], tmp_path: Path) -> None:
    base = made(Path(runtime["XDG_RUNTIME_DIR"]) / "go-ent")
    base.chmod(0o700)
    (base / "repo-1a2b").symlink_to(made(tmp_path / "trap"))
    with pytest.raises(UnsafeFolder, match=r"repo-1a2b' must be a folder, not a link"):
        runtime_dir("repo-1a2b", runtime)


@pytest.mark.parametrize("bits", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_is_refused(runtime: dict[str, str], bits: int) -> None:
    folder = runtime_dir("repo-1a2b", runtime)
    folder.chmod(bits)
    with pytest.raises(UnsafeFolder, match=rf"\(mode {bits:o}\); run: chmod 700 "):
        runtime_dir("repo-1a2b", runtime)


def test_a_folder_of_somebody_else_is_refused(
    runtime: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime_dir("repo-1a2b", runtime)
    us = os.geteuid()
    temporary = Path(runtime["HOME"])
    made(temporary / f"go-ent-{us + 1}")
    monkeypatch.setattr(os, "geteuid", lambda: us + 1)
    with pytest.raises(UnsafeFolder, match=rf"belongs to user {us}, not to {us + 1}"):
        runtime_dir("repo-1a2b", {**runtime, "TMPDIR": str(temporary)})


def test_a_socket_always_fits(tmp_path: Path) -> None:
    key = project_key(tmp_path / ("x" * 60))
    runtime = made(tmp_path / ("r" * max(1, 66 - len(str(tmp_path)))))
    folder = runtime_dir(key, {"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(tmp_path)})
    assert len(os.fsencode(folder / "sock")) <= 100
    assert folder.name == key.rpartition("-")[2]

    far = made(tmp_path / ("d" * 90))
    folder = runtime_dir(key, {"XDG_RUNTIME_DIR": str(far), "TMPDIR": str(far)})
    assert len(os.fsencode(folder / "sock")) <= 100
    assert folder.parent == Path("/tmp") / f"go-ent-{os.geteuid()}"
    folder.rmdir()


def test_state_settings_and_log_are_where_xdg_says(tmp_path: Path) -> None:
    plain = {"HOME": str(tmp_path)}
    assert state_dir(plain) == tmp_path / ".local/state/go-ent"
    assert mode(state_dir(plain)) == 0o700
    assert config_dir(plain) == tmp_path / ".config/go-ent"
    assert not config_dir(plain).exists()
    log = log_path("key", plain)
    assert log == tmp_path / ".local/state/go-ent/projects/key/daemon.log"
    assert log.parent.is_dir()

    moved = {**plain, "XDG_STATE_HOME": str(tmp_path / "s"), "XDG_CONFIG_HOME": str(tmp_path / "c")}
    assert state_dir(moved) == tmp_path / "s/go-ent"
    assert config_dir(moved) == tmp_path / "c/go-ent"
    assert config_dir({**plain, "XDG_CONFIG_HOME": "relative"}) == tmp_path / ".config/go-ent"


def test_the_launcher_can_import_it_without_the_rest() -> None:
    script = (
        "import sys, goent.system.project_folders;"
        "print(*sorted(name for name in sys.modules if 'goent' in name))"
    )
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    assert ran.stdout.split() == ["goent", "goent.system", "goent.system.project_folders"]
