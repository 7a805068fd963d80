"""Folders, markers and settings that another user of the machine prepared."""

import os
import stat
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from goent.config.settings_loader import load_settings
from goent.config.trust_survey import trust_everything
from goent.domain.errors import ConfigError
from goent.system.project_folders import (
    AnyStat,
    FileStat,
    ProjectCandidate,
    UnsafeFolder,
    check_unshared,
    choose_project,
    find_project,
    foreign_owner_text,
    foreign_writer_text,
    is_listed_safe,
    own_users,
)

US, THEM, ROOT = 1000, 2000, 0
NOBODY = 65534
FOLDER, FILE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644
STICKY = stat.S_IFDIR | 0o1777


def a(uid: int, mode: int = FOLDER, gid: int = 100) -> FileStat:
    return FileStat(uid=uid, gid=gid, mode=mode)


def seen(
    path: str, uid: int, markers: Mapping[str, int] | None = None, mode: int = FOLDER
) -> ProjectCandidate:
    found: dict[Path, tuple[AnyStat, ...]] = {
        Path(path, name): (a(owner),) for name, owner in (markers or {}).items()
    }
    return ProjectCandidate(Path(path), a(uid, mode), found)


def chosen(*folders: ProjectCandidate, safe: bool = False) -> str:
    return str(choose_project(folders, {US}, lambda _: safe))


def test_the_nearest_marker_of_ours_is_the_project() -> None:
    home = seen("/home/us", US)
    project = seen("/home/us/p", US, {".goent": US})
    assert chosen(seen("/home/us/p/src", US), project, home) == "/home/us/p"
    assert chosen(seen("/home/us/x", US), home, seen("/home", ROOT)) == "/home/us/x"


def test_what_others_left_above_a_folder_of_ours_is_not_followed() -> None:
    everybodys = seen("/tmp", ROOT, {".goent": THEM}, STICKY)
    assert chosen(seen("/tmp/mine", US), everybodys) == "/tmp/mine"
    theirs = seen("/srv/them", THEM, {".goent": THEM})
    assert chosen(seen("/srv/them/mine", US), theirs) == "/srv/them/mine"
    planted = seen("/home/us", US, {".goent": THEM})
    assert chosen(seen("/home/us/mine", US), planted) == "/home/us/mine"


def test_a_parent_of_somebody_else_ends_the_search() -> None:
    ours_above = seen("/srv", US, {".goent": US})
    assert chosen(seen("/srv/t/mine", US), seen("/srv/t", THEM), ours_above) == "/srv/t/mine"


def test_a_folder_of_somebody_else_with_their_marker_is_refused() -> None:
    for marker in (".goent", ".git"):
        with pytest.raises(UnsafeFolder, match=r"'/srv/p' belongs to .*2000.*safe\.directory"):
            chosen(seen("/srv/p", THEM, {marker: THEM}))
    with pytest.raises(UnsafeFolder, match="'/srv/p' belongs to"):
        chosen(seen("/srv/p/src", THEM), seen("/srv/p", THEM, {".git": THEM}))
    with pytest.raises(UnsafeFolder, match=r"'/home/us/\.goent' belongs to"):
        chosen(seen("/home/us", US, {".goent": THEM}))
    with pytest.raises(UnsafeFolder, match=r"'/tmp/\.goent' belongs to"):
        chosen(seen("/tmp", ROOT, {".goent": THEM}, STICKY))


def test_our_own_marker_in_a_folder_for_everybody_is_followed() -> None:
    assert chosen(seen("/tmp", ROOT, {".goent": US}, STICKY)) == "/tmp"
    with pytest.raises(UnsafeFolder, match="'/srv' belongs to"):
        chosen(seen("/srv", THEM, {".goent": US}, FOLDER | 0o777))


def test_what_the_user_calls_safe_is_followed() -> None:
    assert chosen(seen("/srv/p", THEM, {".git": THEM}), safe=True) == "/srv/p"


def test_git_is_not_asked_where_everything_is_ours() -> None:
    def never(_: Path) -> bool:
        raise AssertionError("asked")

    project = seen("/home/us/p", US, {".git": US})
    assert choose_project([project], {US}, never) == Path("/home/us/p")
    assert choose_project([seen("/tmp/x", US), seen("/tmp", ROOT, {".goent": THEM})], {US}, never)


def test_for_root_by_way_of_sudo_the_askers_files_are_own() -> None:
    assert own_users(0, {"SUDO_UID": "1000"}) == {0, 1000}
    assert own_users(0, {"SUDO_UID": "-1"}) == {0}
    assert own_users(0, {"SUDO_UID": "x"}) == own_users(0, {}) == {0}
    assert own_users(1000, {"SUDO_UID": "2000"}) == {1000}, "only root is believed"


def test_who_else_may_write_is_told() -> None:
    assert not foreign_owner_text(a(US), {US}) and "2000" in foreign_owner_text(a(THEM), {US})
    assert not foreign_writer_text(a(US, FILE), {100})
    assert not foreign_writer_text(a(US, FILE | 0o020, gid=100), {100})
    assert "group 55" in foreign_writer_text(a(US, FILE | 0o020, gid=55), {100})
    assert "everybody (mode 666)" in foreign_writer_text(a(US, FILE | 0o022), {100})
    assert not foreign_writer_text(a(US, stat.S_IFLNK | 0o777), {100})


def test_safe_directories_are_read_as_git_reads_them() -> None:
    assert is_listed_safe("/srv/p", ["*"])
    assert is_listed_safe("/srv/p", ["/other", "/srv/p/"])
    assert not is_listed_safe("/srv/p", ["*", ""])
    assert not is_listed_safe("/srv/p", ["/srv", "/srv/p/inner"])
    assert is_listed_safe("/srv/p", ["/srv/*"]) and not is_listed_safe("/srv2/p", ["/srv/*"])


def test_a_settings_file_that_everybody_can_write_is_not_read(
    tmp_path: Path, home: Mapping[str, str]
) -> None:
    settings = tmp_path / "p/.goent"
    settings.mkdir(parents=True)
    (settings / "config.yaml").write_text("opencode: {command: /evil}\n")
    for path in (settings / "config.yaml", settings):
        path.chmod(0o777)
        with pytest.raises(ConfigError, match=r"by everybody \(mode 777\).*chmod go-w"):
            load_settings(tmp_path / "p", home)
        path.chmod(0o700)
    trust_everything(tmp_path / "p", home)
    assert load_settings(tmp_path / "p", home).opencode.command == "/evil"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    folder = tmp_path / "home"
    folder.mkdir()
    environ = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder / ".config")}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SUDO_UID", raising=False)
    return {**environ, "PATH": os.environ["PATH"]}


def stranger(tmp_path: Path) -> Path:
    """A folder with a marker that is not ours: made so, or one of the system's."""
    if os.geteuid() == 0:
        project = tmp_path / "theirs"
        (project / ".goent").mkdir(parents=True)
        (project / ".goent/config.yaml").write_text("opencode: {command: /evil}\n")
        for path in (project, project / ".goent", project / ".goent/config.yaml"):
            os.chown(path, NOBODY, NOBODY)
        return project
    return Path("/")  # root's, and not ours


def cli(cwd: Path, environ: Mapping[str, str], *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "goent", *command],
        cwd=cwd,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_the_real_commands_refuse_a_project_of_somebody_else(
    tmp_path: Path, home: Mapping[str, str]
) -> None:
    project = stranger(tmp_path)
    told = cli(project, home, "init")
    assert told.returncode == 3
    assert f"'{project}" in told.stderr and "belongs to user" in told.stderr
    assert "git config --global --add safe.directory" in told.stderr
    with pytest.raises(UnsafeFolder, match="belongs to user"):
        check_unshared(project, project)
    if os.geteuid() == 0:
        for command in ("providers", "ps", "doctor", "mcp"):
            told = cli(project, home, command)
            assert told.returncode == 3, command
            assert "belongs to user" in told.stderr + told.stdout, command
        with pytest.raises(ConfigError, match=r"\.goent.*belongs to user"):
            load_settings(project, home)


def test_safe_directory_in_the_users_own_configuration_is_their_word(
    tmp_path: Path, home: Mapping[str, str]
) -> None:
    project = stranger(tmp_path)
    inside = project / ".git"
    if os.geteuid() == 0:
        inside.mkdir()
        (inside / "config").write_text("[safe]\n\tdirectory = *\n")  # the repository's own word
        with pytest.raises(UnsafeFolder):
            find_project(project)
    (Path(home["HOME"]) / ".gitconfig").write_text(f"[safe]\n\tdirectory = {project}\n")
    check_unshared(project, project)
    assert find_project(project) == project
    if os.geteuid() == 0:
        trust_everything(project, home)
        assert load_settings(project, home).opencode.command == "/evil"
