"""Decides which files and folders matter to a sandbox: git's, guarded files, toolchains, sockets."""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath

from goent.permissions.permission_rules import guard_reason
from goent.system.project_folders import home_dir

# Written by git's commit, branch and fetch. Not its hooks and settings, which make it run programs.
_GIT_WRITES = ("objects", "refs", "logs", "lfs")


_GIT_OBEYS = ("hooks", "config", "config.worktree", "info", "commondir", "gitdir", "worktrees")


_SUBMODULE_PATTERNS = (
    "modules/*/config",
    "modules/*/hooks",
    "modules/*/*/config",
    "modules/*/*/hooks",
)


_MAX_GUARDED = 200


# Readable with `read: listed`. Below a home folder, only what contains no credentials.
_SYSTEM = ("/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/proc")


_MORE_SYSTEM = ("/run", "/sbin", "/snap", "/srv", "/sys", "/usr", "/var/lib", "/gnu")


_TOOLCHAINS = (
    *(".asdf", ".bun", ".deno", ".ghcup", ".juliaup", ".nix-profile", ".nvm", ".opam"),
    *(".pyenv", ".rbenv", ".rustup", ".sdkman", ".volta", ".linuxbrew", "go", "sdk"),
    *(".cargo/bin", ".cargo/env", ".cargo/registry", ".cargo/git", ".gradle/wrapper"),
    *(".gradle/caches", ".m2/repository", ".npm", ".cache/pip", ".cache/uv", ".cache/pnpm"),
    *(".local/bin", ".local/lib", ".local/pipx", ".local/share/pnpm", ".local/share/uv/python"),
    *(".local/share/uv/tools", ".local/share/fnm", ".local/share/mise", ".gitconfig"),
    *(f".config/git/{name}" for name in ("config", "ignore", "attributes")),  # not `credentials`
    *(f".dotnet/{name}" for name in ("dotnet", "host", "packs", "sdk", "shared", "tools")),
)


_TOOLCHAIN_VARIABLES = (
    *("ASDF_DATA_DIR", "CONDA_PREFIX", "GOPATH", "GOROOT", "JAVA_HOME", "NVM_DIR", "PYENV_ROOT"),
    *("RBENV_ROOT", "RUSTUP_HOME", "SDKMAN_DIR", "VIRTUAL_ENV", "VOLTA_HOME"),
)


def is_below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


# For paths that others chose: a Path's own methods raise for unreadable folders and long names.


def path_exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 (see above)


def is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 (see above)


def is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 (see above)


def checkout_top(cwd: Path, environ: Mapping[str, str]) -> Path:
    """The top of the git checkout around a folder; the folder itself if there is none.

    A home folder that is a checkout, for the user's settings, does not count for the folders in it.
    """
    home = home_dir(environ).resolve()
    around = [folder for folder in cwd.parents if not home.is_relative_to(folder)]
    return next((folder for folder in (cwd, *around) if path_exists(folder / ".git")), cwd)


def git_writable_folders(top: Path) -> tuple[Path, ...]:
    """The folders that commits and branches need outside the checkout of a linked worktree."""
    own = worktree_git_folder(top)
    if own is None:
        return ()
    common = own.parents[1]
    return (own, *(common / name for name in _GIT_WRITES if is_folder(common / name)))


def worktree_git_folder(top: Path) -> Path | None:
    """The main repository's folder for a linked worktree; None if it is not one.

    A worker can write any path into the checkout's `.git` and into `commondir`. So the folder counts only
    if it lies where git creates it and names the checkout as its own.
    """
    named = _named_folder(top / ".git", "gitdir:")
    own = _real_path(named) if named else None
    if own is None or own.parent.name != "worktrees" or not is_file(own.parents[1] / "HEAD"):
        return None
    back = _named_folder(own / "gitdir", "")
    return own if back and _real_path(back.parent) == top and back.name == ".git" else None


def main_repositories(tops: Iterable[Path]) -> tuple[Path, ...]:
    """The main repositories of linked worktrees: git reads its settings and packed refs there."""
    linked = map(worktree_git_folder, tops)
    return tuple(own.parents[1] for own in linked if own)


def borrowed_objects(top: Path) -> tuple[Path, ...]:
    """The folders of objects that a repository borrows, if the first lies beside the repository.

    A worker can name any folder as the first; what that neighbour borrows is not in its hands.
    """
    found: list[Path] = []
    own = _git_folder(top)
    first = _alternates(own / "objects") if own else []
    waiting = [path for path in first if path.parents[1] == top.resolve().parent]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.append(path)
            waiting += _alternates(path)
    return tuple(found)


def _alternates(objects: Path) -> list[Path]:
    try:
        lines = (objects / "info" / "alternates").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    named = (line for line in lines if line and not line.startswith("#") and "\0" not in line)
    found = (_real_path(objects / line) for line in named)
    return [path for path in found if path.name == "objects" and is_file(path.parent / "HEAD")]


def _git_folder(top: Path) -> Path | None:
    marker = top / ".git"
    if is_folder(marker):
        return marker
    return _named_folder(marker, "gitdir:")


def _named_folder(file: Path, begin: str) -> Path | None:
    """The folder that one of git's own files names."""
    try:
        text = file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    if "\0" in text:
        return None
    return Path(os.path.normpath(file.parent / text.removeprefix(begin).strip()))


def _real_path(path: Path) -> Path:
    """The path without links; unlike `Path.resolve`, it does not raise for circular ones."""
    return Path(os.path.realpath(path))


def guarded_paths(cwd: Path, top: Path) -> tuple[Path, ...]:
    """The existing files that other programs obey, from a folder up to its checkout's top."""
    folders = [folder for folder in (cwd, *cwd.parents) if folder.is_relative_to(top)]
    found = [path for folder in folders or [cwd] for path in _guarded_in(folder)]
    return tuple(found[:_MAX_GUARDED])


def _guarded_in(folder: Path) -> Iterator[Path]:
    for name in _entry_names(folder):
        path = folder / name
        if name == ".git":
            if is_folder(path):
                yield from _git_obeyed_paths(path)
            else:
                yield path
                yield from _git_obeyed_paths(worktree_git_folder(folder))
        elif guard_reason(PurePath(name)):
            yield path
        elif name.startswith(".") and is_folder(path):
            yield from (
                path / each for each in _entry_names(path) if guard_reason(PurePath(name, each))
            )


def _git_obeyed_paths(own: Path | None) -> Iterator[Path]:
    if own:
        yield from (own / each for each in _GIT_OBEYS if path_exists(own / each))
        yield from (found for pattern in _SUBMODULE_PATTERNS for found in own.glob(pattern))


def _entry_names(folder: Path) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 (names alone)
    except OSError:
        return []


def listed_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The folders readable with `read: listed`: the system, and toolchains without credentials."""
    home = home_dir(environ)
    programs = (Path(each) for each in environ.get("PATH", "").split(os.pathsep) if each)
    system = map(Path, (*_SYSTEM, *_MORE_SYSTEM))
    tools = (home / name for name in _TOOLCHAINS)
    elsewhere = (Path(environ[name]) for name in _TOOLCHAIN_VARIABLES if environ.get(name))
    searched = (each for path in programs for each in (path, *_program_root(path)))
    beside = (path for path in (*elsewhere, *searched) if path.is_absolute())
    return tuple(dict.fromkeys((*system, *tools, *(path for path in beside if path != home))))


def _program_root(programs: Path) -> Iterator[Path]:
    """What the programs of a folder on the PATH load, if it is a virtual environment's or pyenv's."""
    if programs.name == "shims" or is_file(programs.parent / "pyvenv.cfg"):
        yield programs.parent


def program_folders(program: Path, home: Path) -> Iterator[Path]:
    """A program's folder, also behind links, and the environment whose packages it loads.

    In a home folder, or a hidden folder in it, only the program itself: other files lie beside it.
    """
    real = program.resolve()
    for path in (program, real):
        folder = path.parent
        hidden = folder.parent == home and folder.name.startswith(".")
        yield path if hidden or home.is_relative_to(folder) else folder
    yield from (folder for folder in real.parents if folder.name == "node_modules")
    for path in (program, real):
        environment = path.parent.parent
        if path.parent.name == "bin" and is_file(environment / "pyvenv.cfg"):
            yield environment


def listening_sockets() -> tuple[Path, ...]:
    """Unix sockets in the file system on which a process listens."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    except OSError:
        return ()
    listening = 0x10000  # a flag in the fourth column
    rows = (line.split(maxsplit=7) for line in lines[1:])
    named = (row for row in rows if len(row) == 8)  # noqa: PLR2004 (the last column is the name)
    paths = (row[7] for row in named if int(row[3], 16) & listening and row[7].startswith("/"))
    return tuple(dict.fromkeys(map(Path, paths)))
