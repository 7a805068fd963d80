"""Describes a process's confinement: its folders, its command line, and the best level available.

A folder's name is a mark: what it is mounted for can be found by it, and the next go-ent removes what a
killed one left.
"""

import logging
import os
import shutil
import stat
import sys
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path, PurePath
from py_compile import PyCompileError
from py_compile import compile as compile_file
from tempfile import TemporaryDirectory

import anyio
from anyio import to_thread

from goent.domain.errors import WorkerCrashed
from goent.domain.sandbox_port import (
    NetworkAccess,
    SandboxLevel,
    SandboxLevelName,
    SandboxStrictness,
)
from goent.domain.types import Value
from goent.permissions.permission_rules import guard_reason
from goent.proc.child_process import run_command
from goent.proc.process_table import MOUNT_PREFIX, is_owner_alive, mount_name, new_mark, new_owner
from goent.system.project_folders import home_dir

LAUNCHER = Path(__file__).with_name("launcher.py")
# Where other programs leave sockets and files: a confined process has folders of its own there.
PRIVATE_FOLDERS = tuple(map(Path, ("/tmp", "/var/tmp", "/dev/shm", "/run", "/var/run")))  # noqa: S108 (not written here)
OPTIONS_VARIABLE = "GOENT_SANDBOX"  # a variable with the launcher's options
OPTIONS_SEPARATOR = "\x1f"  # between them


class Confinement(Value, frozen=True, kw_only=True):
    """The limits of one process and of all that it starts.

    `nestable`: its own commands are confined again. `scoped`: it cannot send signals out of the sandbox, nor
    reach abstract sockets; with namespaces, commands inside could then not move files between folders, because
    Landlock forbids that wherever a layer around does not allow it. `kept` is what it must be able to see although
    the folder around it is replaced by a private one. `readable` is None if it can read everything.
    `temporary` is None for a command of a process that is confined already: it shares that one's.
    `deciding` is read only as well, and at every level.
    `ports` are the only ones that it can connect to, unless the network is all open.
    """

    level: SandboxLevelName
    writable: tuple[Path, ...]
    temporary: Path | None = None
    read_only: tuple[Path, ...] = ()
    always_read_only: tuple[Path, ...] = ()
    hidden: tuple[Path, ...] = ()
    kept_visible: tuple[Path, ...] = ()
    readable: tuple[Path, ...] | None = None
    network: NetworkAccess = "all"
    ports: tuple[int, ...] = ()
    is_nestable: bool = False
    is_scoped: bool = True
    unix_sockets: bool = False
    unset: tuple[str, ...] = ()

    def wrap(self, command: Sequence[str]) -> tuple[str, ...]:
        """The command line that starts the command inside."""
        if self.level == "none":
            return tuple(command)
        return (*launcher_command(), *self.options(), "--", *command)

    def options(self) -> tuple[str, ...]:
        """For the launcher."""
        return tuple(self._options())

    def _options(self) -> Iterator[str]:
        if self.level == "namespace":
            yield "--namespaces"
            yield from _repeat_option("--tmp", (self.temporary or "/tmp",))  # noqa: S108 (private by then)
            yield from _repeat_option("--read-only", self.read_only)
        if self.level != "none":
            yield from _repeat_option("--keep", self._covered_kept())
            # Without mounts, an agent that lives long would not see what is new beside a hidden folder.
            yield from _repeat_option(
                "--hide", () if self.level != "namespace" and self.is_nestable else self.hidden
            )
            limits_ports = self.network != "all" and self.is_nestable
            yield from (
                ("--landlock",)
                if self.level == "landlock" or self.is_scoped or limits_ports
                else ()
            )
            yield from ("--nestable",) if self.is_nestable and self.level == "namespace" else ()
            yield from _repeat_option("--write", self.writable)
            yield from _repeat_option("--read-only", self.always_read_only)
            if self.level == "landlock":
                yield "--write-tmpdir"
            yield from _repeat_option("--read", self.readable or ())
            yield from self._network()
            if self.level == "landlock" and not self.unix_sockets:
                yield "--no-unix-sockets"
        yield from _repeat_option("--unset", self.unset)

    def _network(self) -> Iterator[str]:
        if self.network == "off" and not self.is_nestable:
            yield from ("--network", "off")
        elif self.network != "all":
            yield from _repeat_option(
                "--port", self.ports or ("0",)
            )  # port 0: nothing can be reached

    def _covered_kept(self) -> Iterator[Path]:
        """Of what must be seen, that which would be gone."""
        for path in dict.fromkeys(self.kept_visible):
            if any(
                path.is_relative_to(root) and path != root
                for root in (*PRIVATE_FOLDERS, *self.hidden)
            ):
                yield path


def launcher_command() -> tuple[str, ...]:
    """The program that confines itself and becomes the command."""
    return (sys.executable, "-I", "-S", str(_compiled_launcher() or LAUNCHER))


@cache
def _compiled_launcher() -> Path | None:
    """Its bytecode, if there is any and it is up to date: it starts in three quarters of the time."""
    try:
        file = Path(cache_from_source(str(LAUNCHER)))
        if not sys.dont_write_bytecode and not _is_current(file):
            compile_file(str(LAUNCHER), doraise=True)
        is_seen = LAUNCHER.parent in file.parents  # where a confined process may see it
        return file if is_seen and _is_current(file) else None
    except (OSError, NotImplementedError, PyCompileError):
        return None


def _is_current(compiled: Path) -> bool:
    """As Python itself tells: by the time and size of the source that are noted in it."""
    if not compiled.is_file():
        return False
    source, begin = LAUNCHER.stat(), compiled.read_bytes()[:16]
    noted = (0, int(source.st_mtime), source.st_size & 0xFFFFFFFF)
    return begin == MAGIC_NUMBER + b"".join(each.to_bytes(4, "little") for each in noted)


def goent_programs() -> tuple[Path, ...]:
    """What go-ent is made of. It may be installed in a temporary folder."""
    return (Path(sys.prefix), Path(sys.base_prefix), LAUNCHER.parents[1])


def _repeat_option(option: str, values: Iterable[object]) -> Iterator[str]:
    for value in values:
        yield from (option, str(value))


# What git writes with commit, branch and fetch. Not its hooks and settings, which make it run programs.
_GIT_WRITES = ("objects", "refs", "logs", "lfs")
_GIT_OBEYS = ("hooks", "config", "config.worktree", "info", "commondir", "gitdir", "worktrees")
_SUBMODULE_PATTERNS = (
    "modules/*/config",
    "modules/*/hooks",
    "modules/*/*/config",
    "modules/*/*/hooks",
)
_MAX_GUARDED = 200

# With `read: listed`. Below a home folder only what holds no credentials.
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


# Of a path that others chose: a Path raises where a folder on the way is closed, or a name is too long.


def path_exists(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110 (see above)


def is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 (see above)


def is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 (see above)


def checkout_top(cwd: Path, environ: Mapping[str, str]) -> Path:
    """The top of the git checkout around a folder; the folder itself where there is none.

    A home folder that is a checkout, as some keep their settings, is not one for all that lies in it.
    """
    home = home_dir(environ).resolve()
    around = [folder for folder in cwd.parents if not home.is_relative_to(folder)]
    return next((folder for folder in (cwd, *around) if path_exists(folder / ".git")), cwd)


def git_writable_folders(top: Path) -> tuple[Path, ...]:
    """What commits and branches need outside the checkout, if it is a linked worktree."""
    own = worktree_git_folder(top)
    if own is None:
        return ()
    common = own.parents[1]
    return (own, *(common / name for name in _GIT_WRITES if is_folder(common / name)))


def worktree_git_folder(top: Path) -> Path | None:
    """The folder that the main repository has for a linked worktree; None if there is none.

    Whoever works in the checkout can write any path into its `.git`, and into `commondir`. So the
    folder counts only if it lies where git puts it and names the checkout as its own.
    """
    named = _named_folder(top / ".git", "gitdir:")
    own = _real_path(named) if named else None
    if own is None or own.parent.name != "worktrees" or not is_file(own.parents[1] / "HEAD"):
        return None
    back = _named_folder(own / "gitdir", "")
    return own if back and _real_path(back.parent) == top and back.name == ".git" else None


def main_repositories(tops: Iterable[Path]) -> tuple[Path, ...]:
    """Of those checkouts that are linked worktrees: git reads its settings and packed refs there."""
    linked = map(worktree_git_folder, tops)
    return tuple(own.parents[1] for own in linked if own)


def borrowed_objects(top: Path) -> tuple[Path, ...]:
    """Where git finds the objects that a repository borrows, if it borrows them from its own neighbour.

    Whoever works in the checkout can name any folder as the first; what a neighbour borrows is out of
    their hands.
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
    """Behind links; unlike `Path.resolve`, it does not raise for those that lead in a circle."""
    return Path(os.path.realpath(path))


def guarded_paths(cwd: Path, top: Path) -> tuple[Path, ...]:
    """What is there of the files that other programs obey, from a folder up to its checkout's top."""
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
    """What `read: listed` leaves readable: the system, and toolchains without their credentials."""
    home = home_dir(environ)
    programs = (Path(each) for each in environ.get("PATH", "").split(os.pathsep) if each)
    system = map(Path, (*_SYSTEM, *_MORE_SYSTEM))
    tools = (home / name for name in _TOOLCHAINS)
    elsewhere = (Path(environ[name]) for name in _TOOLCHAIN_VARIABLES if environ.get(name))
    searched = (each for path in programs for each in (path, *_program_root(path)))
    beside = (path for path in (*elsewhere, *searched) if path.is_absolute())
    return tuple(dict.fromkeys((*system, *tools, *(path for path in beside if path != home))))


def _program_root(programs: Path) -> Iterator[Path]:
    """What the programs of a folder on the PATH load: of a virtual environment, or of pyenv and its like."""
    if programs.name == "shims" or is_file(programs.parent / "pyvenv.cfg"):
        yield programs.parent


def program_folders(program: Path, home: Path) -> Iterator[Path]:
    """Where a program is, behind its links too, and the environment whose packages it loads.

    Beside one that lies in a home folder, or in a hidden folder there, are other things than programs.
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
    """Unix sockets in the file system that somebody listens on."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()
    except OSError:
        return ()
    listening = 0x10000  # a flag in the fourth column
    rows = (line.split(maxsplit=7) for line in lines[1:])
    named = (row for row in rows if len(row) == 8)  # noqa: PLR2004 (the last column is the name)
    paths = (row[7] for row in named if int(row[3], 16) & listening and row[7].startswith("/"))
    return tuple(dict.fromkeys(map(Path, paths)))


TRIAL_S = 20.0
MAX_TRIALS = (
    3  # of a level that did not answer in time: a busy moment must not decide for a whole life
)
OFF_REASON = "switched off by `sandbox: off`"
_found_levels: dict[SandboxStrictness, SandboxLevel] = {}
_timed_out_trials: dict[SandboxLevelName, int] = {}  # trials that timed out


async def find_level(best: SandboxStrictness) -> SandboxLevel:
    """The best level that works here and is wanted. Tried once in a process's life.

    A trial that timed out is made again the next time, `MAX_TRIALS` in all.
    """
    if best not in _found_levels or _is_undecided(best):
        _found_levels[best] = await _try_levels(best)
    return _found_levels[best]


def _is_undecided(best: SandboxStrictness) -> bool:
    better = _candidate_levels(best)
    if _found_levels[best].name in better:
        better = better[: better.index(_found_levels[best].name)]
    return any(0 < _timed_out_trials.get(level, 0) < MAX_TRIALS for level in better)


def _candidate_levels(best: SandboxStrictness) -> Sequence[SandboxLevelName]:
    if best == "off":
        return ()
    return ("landlock",) if best == "landlock" else ("namespace", "landlock")


def known_level(best: SandboxStrictness) -> SandboxLevel:
    """The same, for those who cannot wait. What was not tried yet is taken for the last that was."""
    if best == "off":
        return SandboxLevel(name="none", reason=OFF_REASON)
    return _found_levels.get(best) or next(
        each for name, each in reversed(_found_levels.items()) if name != "off"
    )


async def _try_levels(best: SandboxStrictness) -> SandboxLevel:
    if best == "off":
        return SandboxLevel(name="none", reason=OFF_REASON)
    if not sys.platform.startswith("linux"):
        return SandboxLevel(name="none", reason=f"there is no sandbox on {sys.platform} yet")
    reasons: list[str] = []
    for level in _candidate_levels(best):
        trouble = await _level_failure(level)
        if not trouble:
            return SandboxLevel(name=level, reason="; ".join(reasons))
        reasons.append(f"no {level}: {trouble}")
    return SandboxLevel(name="none", reason="; ".join(reasons))


async def _level_failure(level: SandboxLevelName) -> str:
    """Why a confined process cannot start another one, confined again; empty if it can."""
    with TemporaryDirectory(prefix="go-ent-") as name:
        folder = Path(name)
        inner = Confinement(level=level, writable=())
        outer = Confinement(
            level=level,
            writable=(),
            temporary=folder,
            kept_visible=goent_programs(),
            is_nestable=True,
        )
        command = outer.wrap(inner.wrap(["/bin/true"]))
        try:
            done = await run_command(command, cwd=Path("/"), env={"TMPDIR": name}, timeout=TRIAL_S)
        except WorkerCrashed as error:
            return str(error)
    if done.exit is None:
        _timed_out_trials[level] = _timed_out_trials.get(level, 0) + 1
        return f"no answer within {TRIAL_S:g} s"
    _timed_out_trials.pop(level, None)
    said = done.errors.strip().removeprefix("go-ent: ").rpartition("confined: ")[2]
    return "" if done.exit == 0 else said or f"exit {done.exit}"


TEMPORARY_FOLDER = "tmp"

log = logging.getLogger(__name__)


@asynccontextmanager
async def temporary_folder(state: Path) -> AsyncGenerator[Path]:
    """A new folder below the state folder, removed with all that is in it.

    Raises `WorkerCrashed` if it cannot be made: what was to be confined there is not started.
    """
    folder = await to_thread.run_sync(_make_folder, state)
    try:
        yield folder
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(_remove_folder, folder)


def remove_leftovers(state: Path) -> None:
    """Remove the folders whose owners are dead."""
    with suppress(OSError):
        for folder in (state / TEMPORARY_FOLDER).iterdir():
            if not is_owner_alive(folder.name.removeprefix(MOUNT_PREFIX).rpartition("~")[0]):
                _remove_folder(folder)


def _make_folder(state: Path) -> Path:
    folder = state / TEMPORARY_FOLDER / mount_name(new_mark(new_owner(state.name)))
    try:
        folder.parent.mkdir(0o700, parents=True, exist_ok=True)
        folder.mkdir(0o700)
    except OSError as error:
        raise WorkerCrashed(
            f"the sandbox has no temporary folder in {str(folder.parent)!r}: {error.strerror}; "
            "free some space, or check its owner and mode"
        ) from error
    return folder


def folder_mark(folder: Path) -> str:
    """The mark of the processes that such a folder is mounted for."""
    return folder.name.removeprefix(MOUNT_PREFIX).replace("~", "/")


def _remove_folder(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # a worker may have closed a folder of its own
        for path, folders, _ in os.walk(folder):
            for name in folders:
                with suppress(OSError):
                    Path(path, name).chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log.warning("the temporary folder %s could not be removed", folder)
