"""Finds a project, and the folders of its socket, state and settings; refuses other users' files.

As in git, files of other users are not trusted, unless the user named the folder as `safe.directory` in
their own global git configuration. Standard library only: `go-ent mcp` must start in well under 100 ms.
"""

import hashlib
import os
import re
import shlex
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

ROOT_UID = 0
GIT_TIMEOUT_S = 10.0  # seconds for git to say which folders are safe


class UnsafeFolder(OSError):
    """A folder that cannot be used, or that other users could have prepared; with the remedy."""


class FileStat:
    """A file's owner, group and mode, for code that is tested without `os.stat_result`."""

    def __init__(self, *, uid: int, gid: int, mode: int) -> None:
        self.st_uid, self.st_gid, self.st_mode = uid, gid, mode


AnyStat = os.stat_result | FileStat


def own_users(euid: int, environ: Mapping[str, str]) -> frozenset[int]:
    """The ids whose files count as the user's own: with sudo, also those of the user who called it."""
    asked = environ.get("SUDO_UID", "")
    if euid == ROOT_UID and re.fullmatch(r"[0-9]{1,10}", asked):
        return frozenset({euid, int(asked)})
    return frozenset({euid})


def foreign_owner_text(found: AnyStat, users: Collection[int]) -> str:
    """Whose file it is, in words; empty if it is the user's own."""
    return "" if found.st_uid in users else f"belongs to {_user_name(found.st_uid)}"


def foreign_writer_text(found: AnyStat, groups: Collection[int]) -> str:
    """Who else may write the file, in words; empty if nobody. A link's own mode means nothing."""
    mode = found.st_mode
    if stat.S_ISLNK(mode):
        return ""
    if mode & stat.S_IWOTH:
        return f"can be written by everybody (mode {mode & 0o7777:o})"
    if mode & stat.S_IWGRP and found.st_gid not in groups:
        return f"can be written by the group {found.st_gid}, which is not yours (mode {mode & 0o7777:o})"
    return ""


def check_own(path: "str | os.PathLike[str]", project: "str | os.PathLike[str]") -> None:
    """Raise `UnsafeFolder` if the path exists and belongs to another user."""
    users = own_users(os.geteuid(), os.environ)
    for found in stats_at(path):
        if (words := foreign_owner_text(found, users)) and not is_safe_directory(project):
            raise foreign_owner_error(path, words, project)


def check_unshared(path: "str | os.PathLike[str]", project: "str | os.PathLike[str]") -> None:
    """Raise `UnsafeFolder` if the path exists and others own it or can write it."""
    check_own(path, project)
    groups = {os.getegid(), *os.getgroups()}
    for found in stats_at(path):
        if (words := foreign_writer_text(found, groups)) and not is_safe_directory(project):
            name = os.fspath(path)
            raise UnsafeFolder(
                f"{name!r} {words}, so go-ent does not follow it: run `chmod go-w {shlex.quote(name)}`, "
                f"or, if you trust everybody who can: {_safe_directory_remedy(project)}"
            )


def ownership_stamp(path: "str | os.PathLike[str]") -> tuple[object, ...]:
    """A value that changes whenever the result of `check_unshared` may change."""
    found = stats_at(path)
    users, groups = own_users(os.geteuid(), os.environ), {os.getegid(), *os.getgroups()}
    asked = any(
        foreign_owner_text(each, users) or foreign_writer_text(each, groups) for each in found
    )
    told = tuple((each.st_uid, each.st_gid, each.st_mode) for each in found)
    return (*told, _git_config_state()) if asked else told


def foreign_owner_error(
    path: "str | os.PathLike[str]", words: str, project: "str | os.PathLike[str]"
) -> UnsafeFolder:
    """The error for a file or folder of another user."""
    return UnsafeFolder(
        f"{os.fspath(path)!r} {words}, not to you ({_user_name(os.geteuid())}), so go-ent does not follow "
        f"what is in it: work in a folder of your own, or, if you trust its owner: {_safe_directory_remedy(project)}"
    )


def is_safe_directory(project: "str | os.PathLike[str]") -> bool:
    """Whether the user named the folder as safe in their own git configuration. Asks git."""
    real = os.path.realpath(project)
    return is_listed_safe(real, _safe_directories(_git_config_state()))


def is_listed_safe(folder: str, listed: Iterable[str]) -> bool:
    """Whether a folder is in `safe.directory`, as git reads it: an empty entry resets the list."""
    safe = False
    for each in listed:
        if not each:
            safe = False
        elif each == "*" or os.path.normpath(each) == folder:
            safe = True
        else:
            safe = safe or (each.endswith("/*") and folder.startswith(each[:-1]))
    return safe


@lru_cache(maxsize=4)
def _safe_directories(state: tuple[object, ...]) -> tuple[str, ...]:  # noqa: ARG001 (the cache key)
    import shutil  # noqa: PLC0415 (hardly ever, and what must start fast imports this)
    import subprocess  # noqa: PLC0415, TID251 (the same; one short question to git)

    path = os.pathsep.join(
        each for each in os.environ.get("PATH", os.defpath).split(os.pathsep) if each[:1] == "/"
    )
    git = shutil.which("git", path=path)
    if git is None:
        return ()
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GIT_") or name == "GIT_CONFIG_GLOBAL"
    }
    command = (git, "config", "--global", "--includes", "--type=path", "-z")
    try:
        said = subprocess.run(  # (reads the user's own file, in no repository)
            (*command, "--get-all", "safe.directory"),
            cwd="/",
            env={**environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(os.fsdecode(said.stdout).split("\0")[:-1])


def _git_config_state() -> tuple[object, ...]:
    """What git's answer depends on: when it changes, git is asked again."""
    home = os.environ.get("HOME", "")
    other = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    given = os.environ.get("GIT_CONFIG_GLOBAL")
    paths = (given,) if given else (f"{home}/.gitconfig", f"{other}/git/config")
    return (os.environ.get("PATH"), *((path, _file_stamp(path)) for path in paths))


def _file_stamp(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)  # noqa: PTH116 (no Path is needed)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def stats_at(path: "str | os.PathLike[str]") -> tuple[os.stat_result, ...]:
    """The status of a path: of a link, its own and its target's; empty if nothing is there."""
    try:
        found = os.lstat(path)
    except OSError:
        return ()
    if not stat.S_ISLNK(found.st_mode):
        return (found,)
    with suppress(OSError):
        return found, os.stat(path)  # noqa: PTH116 (no Path is needed)
    return (found,)


def _safe_directory_remedy(project: "str | os.PathLike[str]") -> str:
    return f"git config --global --add safe.directory {shlex.quote(os.path.realpath(project))}"


def _user_name(uid: int) -> str:
    try:
        import pwd  # noqa: PLC0415 (for an error alone)

        return f"user {pwd.getpwuid(uid).pw_name} ({uid})"
    except (ImportError, KeyError):
        return f"user {uid}"


MAX_SOCKET_PATH = 100  # bytes; a Unix socket's path may have 104 on macOS, 108 on Linux
KEY_NAME_CHARS = 24  # of the folder's name in a key
PRIVATE_MODE = 0o700
PROJECT_MARKERS = (".goent", ".git")


class ProjectCandidate:
    """A folder on the way up, with the status of it and of each marker in it."""

    def __init__(
        self, folder: Path, found: AnyStat, markers: Mapping[Path, Sequence[AnyStat]]
    ) -> None:
        self.folder = folder
        self.found = found
        self.markers = markers


def find_project(cwd: Path) -> Path:
    """The nearest folder that has `.goent/` or is the top of a git checkout, else `cwd`.

    Raises `UnsafeFolder` if another user created the nearest; see `choose_project`.
    """
    here = cwd.resolve()
    return choose_project(
        map(_candidate, (here, *here.parents)),
        own_users(os.geteuid(), os.environ),
        is_safe_directory,
    )


def choose_project(
    seen: Iterable[ProjectCandidate], users: Collection[int], is_safe: Callable[[Path], bool]
) -> Path:
    """Which of the folders is the project, from the innermost up.

    A marker that another user put above a folder of this user is ignored, and ends the search: anybody may
    create /tmp/.goent. In another user's folder, that user's marker raises `UnsafeFolder`, unless the
    folder is listed as safe.
    """
    folders = iter(seen)
    here = each = next(folders)
    ours = here.found.st_uid in users
    while each.found.st_uid in users or each.found.st_uid == here.found.st_uid:
        if each.markers:
            stranger = _foreign_part(each, users)
            if stranger is None or is_safe(each.folder):
                return each.folder
            if each is here or not ours:
                raise foreign_owner_error(*stranger, each.folder)
            break
        above = next(folders, None)
        if above is None:
            break
        each = above
    return here.folder


def _foreign_part(seen: ProjectCandidate, users: Collection[int]) -> tuple[Path, str] | None:
    """The first part that is another user's, and whose it is."""
    # In a folder like /tmp, each user's files are protected from the others.
    everybodys = seen.found.st_mode & stat.S_ISVTX and seen.found.st_mode & stat.S_IWOTH
    around = {} if everybodys else {seen.folder: (seen.found,)}
    for path, founds in {**around, **seen.markers}.items():
        for found in founds:
            if words := foreign_owner_text(found, users):
                return path, words
    return None


def _candidate(folder: Path) -> ProjectCandidate:
    try:
        found: AnyStat = folder.stat()
    except OSError:  # unreadable, so its owner is unknown
        found = FileStat(uid=-1, gid=-1, mode=0)
    markers = {
        path: infos for name in PROJECT_MARKERS if (infos := stats_at(path := folder / name))
    }
    return ProjectCandidate(folder, found, markers)


def project_key(project: Path) -> str:
    """A stable, readable name for the project that is valid in a path: `myrepo-1a2b3c4d5e6f`."""
    real = project.resolve()
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9_]+", "-", real.name)[:KEY_NAME_CHARS].strip("-")
    return f"{readable}-{digest}" if readable else digest


def runtime_dir(key: str, environ: Mapping[str, str]) -> Path:
    """The project's private folder for its socket `sock`; created."""
    for folder in runtime_folders(key, environ):
        _make_private(folder.parent)
        _make_private(folder)
        return folder
    raise UnsafeFolder(f"no folder for {key!r} has a path short enough for a socket")


def runtime_folders(key: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The possible folders of the socket of a daemon with this environment, the best first; not created."""
    places = (base / name for base in _runtime_bases(environ) for name in runtime_folder_names(key))
    fitting = (folder for folder in places if len(os.fsencode(folder / "sock")) <= MAX_SOCKET_PATH)
    return tuple(dict.fromkeys(fitting))


def runtime_folder_names(key: str) -> tuple[str, str]:
    """The names of the project's folder for its socket; the second is for long paths."""
    return key, key.rpartition("-")[2]


def is_private_folder(folder: Path) -> bool:
    """Whether it is this user's folder, and nobody else can write it."""
    try:
        info = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022


def existing_runtime_bases(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The existing folders that contain the sockets of all projects."""
    return tuple(base for base in _runtime_bases(environ) if base.is_dir())


def state_dir(environ: Mapping[str, str]) -> Path:
    """The folder of journals, ledger and logs, `$XDG_STATE_HOME/go-ent`; created."""
    return _make_folders(_xdg_dir(environ, "XDG_STATE_HOME", ".local/state"), "go-ent")


def state_path(environ: Mapping[str, str]) -> Path:
    """The folder of journals, ledger and logs; not created."""
    return _xdg_dir(environ, "XDG_STATE_HOME", ".local/state") / "go-ent"


def default_state_path(environ: Mapping[str, str]) -> Path:
    """The folder of journals, ledger and logs without XDG_STATE_HOME; not created."""
    return home_dir(environ) / ".local/state/go-ent"


def config_dir(environ: Mapping[str, str]) -> Path:
    """The user's own settings: `$XDG_CONFIG_HOME/go-ent`. Not created."""
    return _xdg_dir(environ, "XDG_CONFIG_HOME", ".config") / "go-ent"


def log_path(key: str, environ: Mapping[str, str]) -> Path:
    """The log of the project's daemon; its folder exists afterwards."""
    return project_state_dir(key, environ) / "daemon.log"


def project_state_dir(key: str, environ: Mapping[str, str]) -> Path:
    """The project's own folder for its journal, its log and what its workers keep."""
    return _make_folders(state_dir(environ), "projects", key)


def restrict_permissions(folder: Path) -> None:
    """Close a state folder and the files in it to other users; an older go-ent left some open."""
    for path in (folder, *folder.iterdir()):
        info = path.lstat()
        if info.st_mode & 0o077 and not stat.S_ISLNK(info.st_mode):
            path.chmod(PRIVATE_MODE if stat.S_ISDIR(info.st_mode) else 0o600)


def home_dir(environ: Mapping[str, str]) -> Path:
    """The user's home, from the environment, else from the user database."""
    if os.path.isabs(home := environ.get("HOME", "")):  # noqa: PTH117 (cheaper than a Path)
        return Path(home)
    import pwd  # noqa: PLC0415 (hardly ever, and Windows has none)

    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir or "/")
    except KeyError:  # a container may run as a user that is not in its database
        return Path("/")


def _runtime_bases(environ: Mapping[str, str]) -> Iterator[Path]:
    runtime = Path(environ.get("XDG_RUNTIME_DIR") or ".")
    if runtime.is_absolute() and _is_usable(runtime):
        yield runtime / "go-ent"
    temporary = Path(environ.get("TMPDIR") or "/tmp")  # noqa: S108 (the folder below is checked)
    for parent in (temporary, Path("/tmp")):  # noqa: S108 (the same)
        if parent.is_absolute() and parent.is_dir():
            yield parent / f"go-ent-{os.geteuid()}"


def _is_usable(folder: Path) -> bool:
    try:
        info = folder.stat()
    except OSError:
        return False
    owned = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
    return owned and os.access(folder, os.W_OK | os.X_OK)


def _make_private(folder: Path) -> None:
    try:
        with suppress(FileExistsError):
            folder.mkdir(PRIVATE_MODE)
        info = folder.lstat()
    except OSError as error:
        raise unusable_folder_error(folder, error, "XDG_RUNTIME_DIR") from error
    if not stat.S_ISDIR(info.st_mode):
        raise UnsafeFolder(f"{str(folder)!r} must be a folder, not a link or a file; remove it")
    if info.st_uid != os.geteuid():
        raise UnsafeFolder(
            f"{str(folder)!r} belongs to user {info.st_uid}, not to {os.geteuid()}; "
            "remove it, or set XDG_RUNTIME_DIR to a folder of your own"
        )
    if info.st_mode & 0o022:
        raise UnsafeFolder(
            f"{str(folder)!r} can be written by others (mode {info.st_mode & 0o777:o}); "
            f"run: chmod 700 {folder}"
        )


def _make_folders(base: Path, *below: str) -> Path:
    """Create the base, which is the user's, and in it private folders."""
    folder = base
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in below:
            folder /= name
            folder.mkdir(PRIVATE_MODE, exist_ok=True)
    except OSError as error:
        raise unusable_folder_error(folder, error, "XDG_STATE_HOME") from error
    return folder


def unusable_folder_error(path: Path, error: OSError, variable: str) -> UnsafeFolder:
    """The error for a folder that cannot be written, with the remedy."""
    return UnsafeFolder(
        f"cannot write {str(path)!r}: {error.strerror}; check its owner, mode and disk, "
        f"or set {variable} to a folder of your own"
    )


def _xdg_dir(environ: Mapping[str, str], name: str, default: str) -> Path:
    # The XDG specification: a path that is not absolute is to be ignored.
    given = environ.get(name, "")
    return Path(given) if os.path.isabs(given) else home_dir(environ) / default  # noqa: PTH117 (cheaper than a Path)
