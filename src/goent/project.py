"""Where does a project begin, and where do its socket, its state and its settings live?

Standard library only: the launcher must start in well under 100 ms and imports this.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from goent.ownership import (
    Found,
    Owned,
    UnsafeFolder,
    foreign,
    is_safe,
    own_users,
    seen_at,
    whose,
)

SOCKET_ROOM = 100  # bytes; a Unix socket's path may have 104 on macOS, 108 on Linux
READABLE = 24  # characters of the folder's name that a key keeps
PRIVATE = 0o700
MARKERS = (".goent", ".git")


class Seen:
    """A folder on the way up: what the system says of it, and of each marker in it."""

    def __init__(self, folder: Path, found: Owned, markers: Mapping[Path, Sequence[Owned]]) -> None:
        self.folder = folder
        self.found = found
        self.markers = markers


def find_project(cwd: Path) -> Path:
    """The nearest folder that has `.goent/` or is the top of a git checkout, else `cwd`.

    Raises `UnsafeFolder` where the nearest was put there by somebody else; see `choose`.
    """
    here = cwd.resolve()
    return choose(map(_seen, (here, *here.parents)), own_users(os.geteuid(), os.environ), is_safe)


def choose(seen: Iterable[Seen], users: Collection[int], is_safe: Callable[[Path], bool]) -> Path:
    """Which of the folders is the project, from the innermost up.

    What somebody else put above a folder of ours is not followed, and the search ends there: anyone
    may create /tmp/.goent. In a folder of theirs, what they put there raises `UnsafeFolder`, unless
    the user says that it is safe.
    """
    folders = iter(seen)
    here = each = next(folders)
    ours = here.found.st_uid in users
    while each.found.st_uid in users or each.found.st_uid == here.found.st_uid:
        if each.markers:
            stranger = _stranger(each, users)
            if stranger is None or is_safe(each.folder):
                return each.folder
            if each is here or not ours:
                raise foreign(*stranger, each.folder)
            break
        above = next(folders, None)
        if above is None:
            break
        each = above
    return here.folder


def _stranger(seen: Seen, users: Collection[int]) -> tuple[Path, str] | None:
    """What in it is not the user's own, and whose it is."""
    # In a folder like /tmp everybody's own files are safe from the others.
    everybodys = seen.found.st_mode & stat.S_ISVTX and seen.found.st_mode & stat.S_IWOTH
    around = {} if everybodys else {seen.folder: (seen.found,)}
    for path, founds in {**around, **seen.markers}.items():
        for found in founds:
            if words := whose(found, users):
                return path, words
    return None


def _seen(folder: Path) -> Seen:
    try:
        found: Owned = folder.stat()
    except OSError:  # it is closed to us, and so nobody's we know
        found = Found(uid=-1, gid=-1, mode=0)
    markers = {path: infos for name in MARKERS if (infos := seen_at(path := folder / name))}
    return Seen(folder, found, markers)


def project_key(project: Path) -> str:
    """A name for the project that is stable, readable and fit for a file: `myrepo-1a2b3c4d5e6f`."""
    real = project.resolve()
    digest = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9_]+", "-", real.name)[:READABLE].strip("-")
    return f"{readable}-{digest}" if readable else digest


def runtime_dir(key: str, environ: Mapping[str, str]) -> Path:
    """The project's folder for its socket `sock`, made for us alone."""
    for folder in runtime_folders(key, environ):
        _make_private(folder.parent)
        _make_private(folder)
        return folder
    raise UnsafeFolder(f"no folder for {key!r} has a path short enough for a socket")


def runtime_folders(key: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Where the socket of a daemon with such an environment may lie, the best first. Not created."""
    places = (base / name for base in _runtime_bases(environ) for name in key_names(key))
    fitting = (folder for folder in places if len(os.fsencode(folder / "sock")) <= SOCKET_ROOM)
    return tuple(dict.fromkeys(fitting))


def key_names(key: str) -> tuple[str, str]:
    """The names of the project's folder for its socket: the second where the first is too long."""
    return key, key.rpartition("-")[2]


def is_private(folder: Path) -> bool:
    """Whether it is a folder of ours that nobody else can write."""
    try:
        info = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid() and not info.st_mode & 0o022


def runtime_path(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders that hold the sockets of all projects, as far as they are there."""
    return tuple(base for base in _runtime_bases(environ) if base.is_dir())


def state_dir(environ: Mapping[str, str]) -> Path:
    """Journals, ledger and logs: `$XDG_STATE_HOME/go-ent`."""
    return _made(_xdg(environ, "XDG_STATE_HOME", ".local/state"), "go-ent")


def state_path(environ: Mapping[str, str]) -> Path:
    """The same. Not created."""
    return _xdg(environ, "XDG_STATE_HOME", ".local/state") / "go-ent"


def default_state(environ: Mapping[str, str]) -> Path:
    """The same for who has no XDG_STATE_HOME. Not created."""
    return home_dir(environ) / ".local/state/go-ent"


def config_dir(environ: Mapping[str, str]) -> Path:
    """The user's own settings: `$XDG_CONFIG_HOME/go-ent`. Not created."""
    return _xdg(environ, "XDG_CONFIG_HOME", ".config") / "go-ent"


def log_path(key: str, environ: Mapping[str, str]) -> Path:
    """The log of the project's daemon; its folder exists afterwards."""
    return project_state(key, environ) / "daemon.log"


def project_state(key: str, environ: Mapping[str, str]) -> Path:
    """The project's own folder for its journal, its log and what its workers keep."""
    return _made(state_dir(environ), "projects", key)


def seal(folder: Path) -> None:
    """What lies in a state folder is ours alone, also what an older go-ent left open."""
    for path in (folder, *folder.iterdir()):
        info = path.lstat()
        if info.st_mode & 0o077 and not stat.S_ISLNK(info.st_mode):
            path.chmod(PRIVATE if stat.S_ISDIR(info.st_mode) else 0o600)


def home_dir(environ: Mapping[str, str]) -> Path:
    """The user's home, as the environment tells it, else the user database."""
    if os.path.isabs(home := environ.get("HOME", "")):  # noqa: PTH117 (cheaper than a Path)
        return Path(home)
    import pwd  # noqa: PLC0415 (hardly ever, and Windows has none)

    try:
        return Path(pwd.getpwuid(os.geteuid()).pw_dir or "/")
    except KeyError:  # a container may run as a user that it does not know
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
            folder.mkdir(PRIVATE)
        info = folder.lstat()
    except OSError as error:
        raise unusable(folder, error, "XDG_RUNTIME_DIR") from error
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


def _made(base: Path, *below: str) -> Path:
    """`below` are folders of ours, and private each; the base is the user's."""
    folder = base
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in below:
            folder /= name
            folder.mkdir(PRIVATE, exist_ok=True)
    except OSError as error:
        raise unusable(folder, error, "XDG_STATE_HOME") from error
    return folder


def unusable(path: Path, error: OSError, variable: str) -> UnsafeFolder:
    """The system's refusal, with what can be done about it."""
    return UnsafeFolder(
        f"cannot write {str(path)!r}: {error.strerror}; check its owner, mode and disk, "
        f"or set {variable} to a folder of your own"
    )


def _xdg(environ: Mapping[str, str], name: str, default: str) -> Path:
    # The XDG specification: a path that is not absolute is to be ignored.
    given = environ.get(name, "")
    return Path(given) if os.path.isabs(given) else home_dir(environ) / default  # noqa: PTH117 (cheaper than a Path)
