"""Finds the OpenCode program and its folders, and checks its version.

`opencode` on the PATH may be npm's launcher, and after `npm install --ignore-scripts` that is a
stub which only prints an error. The program itself is in a platform package beside it.

The installer of OpenCode 2 replaces OpenCode 1 under the same name, even while go-ent runs. Its `run`
passes the work to a background service that bypasses our gate. So the version is checked before
every start, and again when the server answers.
"""

import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from goent.domain.errors import OpenCodeMissing, UnsupportedVersion, WorkerCrashed
from goent.domain.types import Value
from goent.proc.child_process import run_command
from goent.proc.programs import find_program
from goent.system.project_folders import home_dir

OPENCODE = "opencode"
NATIVE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # ELF, Mach-O, universal Mach-O
NODE_MODULES = "node_modules"
STUB = b"postinstall script was not run"
OPENCODE_2 = (
    "@opencode"  # the scope of OpenCode 2's packages; those of OpenCode 1 may be beside them
)
INSTALL_REMEDY = (
    "install it with `npm install -g opencode-ai@1`, "
    "or name the program: GOENT_OPENCODE=/path/to/opencode"
)


def find_opencode(command: str | None, environ: Mapping[str, str]) -> Path:
    """The program by the setting, `GOENT_OPENCODE` or the PATH, in this order."""
    wanted = command or environ.get("GOENT_OPENCODE") or OPENCODE
    found = find_program(str(Path(wanted).expanduser()), environ)
    if found is None:
        raise OpenCodeMissing(f"there is no program {wanted!r}: {INSTALL_REMEDY}")
    return _program(Path(found))


def find_ripgrep(opencode: Path, environ: Mapping[str, str]) -> Path | None:
    """`rg` on the PATH, or the one that npm installed with OpenCode. Never a repository's own."""
    if found := find_program("rg", environ):
        return Path(found)
    return next(_installed_with(opencode, f"@vscode/ripgrep-{_system()}-{_machine()}/bin/rg"), None)


def is_native(program: Path) -> bool:
    """Whether the file is a binary, not a script that starts it."""
    return _head(program).startswith(NATIVE)


def _head(program: Path) -> bytes:
    with program.open("rb") as file:
        return file.read(4096)


def _program(found: Path) -> Path:
    path = found.resolve()
    head = _head(path)
    if head.startswith(NATIVE):
        return path
    for name in () if OPENCODE_2 in path.parts else platform_packages():
        for program in _installed_with(path, f"{name}/bin/opencode"):
            return program
    if STUB in head:
        raise OpenCodeMissing(f"{str(path)!r} is npm's stub without its program: {INSTALL_REMEDY}")
    return path  # a wrapper of the user's


def platform_packages() -> tuple[str, ...]:
    """The packages whose program runs on this machine, best first."""
    base = f"opencode-{_system()}-{_machine()}"
    builds = ("", "-baseline") if _has_avx2() else ("-baseline",)
    builds = builds if _machine() == "x64" else ("",)
    libc = "-musl" if _is_musl() else ""
    return tuple(f"{base}{build}{libc}" for build in builds)


def _installed_with(program: Path, inside: str) -> Iterator[Path]:
    """Files of the npm installation that the program is part of: of any `node_modules` around it.

    Other `node_modules`, further up or near the worker, may be under somebody else's control.
    """
    for folder in program.parents:
        if NODE_MODULES in folder.parts:
            packages = folder if folder.name == NODE_MODULES else folder / NODE_MODULES
            if (packages / inside).is_file():
                yield packages / inside


def _system() -> str:
    return "darwin" if sys.platform == "darwin" else "linux"


def _machine() -> str:
    return "arm64" if platform.machine().lower() in ("arm64", "aarch64") else "x64"


def _has_avx2() -> bool:
    try:
        return " avx2" in Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return True  # macOS: every machine that it still supports has it


def _is_musl() -> bool:
    return sys.platform == "linux" and platform.libc_ver()[0] != "glibc"


OPENCODE_NAME = "OpenCode"
# Older ones can lose the end of an answer, or report a failure as a success.
OLDEST_VERSION = (1, 18, 3)
NEWEST_TESTED = (1, 18, 34)
TESTED_RANGE = "tested with 1.18.3 to 1.18.34"
AGENT_REMEDY = "name an OpenCode 1 there (`npm install -g opencode-ai@1`)"
_NUMBER = re.compile(r"(?<![\w.])v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(-\S+)?")
_Identity = tuple[int, int, int, int]
_known_versions: dict[_Identity, str] = {}


class OpenCodeVersion(Value, frozen=True, kw_only=True):
    """A version number, and the suffix of a build that is not a release."""

    number: tuple[int, int, int]
    build: str = ""

    def __str__(self) -> str:
        return ".".join(map(str, self.number)) + self.build

    @property
    def is_preview(self) -> bool:
        """Built from a branch, so that its generation is unknown."""
        return self.number == (0, 0, 0)


def parse_version(output: str) -> OpenCodeVersion | None:
    """The number in the last line; a wrapper may have printed something before."""
    lines = [line for line in output.splitlines() if line.strip()]
    found = _NUMBER.search(lines[-1]) if lines else None
    if found is None:
        return None
    major, minor, patch, build = found.groups(default="")
    return OpenCodeVersion(number=(int(major), int(minor), int(patch)), build=build)


def check_version(output: str, where: str, *, remedy: str = INSTALL_REMEDY) -> OpenCodeVersion:
    """Raises `UnsupportedVersion`, with the remedy, unless go-ent works with it."""
    version = _check_generation(output, where, remedy)
    if version.number < OLDEST_VERSION:
        oldest = ".".join(map(str, OLDEST_VERSION))
        raise UnsupportedVersion(
            f"{where} is {OPENCODE_NAME} {version}, but go-ent needs {oldest} or newer ({TESTED_RANGE}): {remedy}"
        )
    return version


def check_agent(output: str, name: str) -> OpenCodeVersion:
    """The same for the command of `agents.<name>`, whose age does not matter."""
    return _check_generation(output, f"agents.{name}", AGENT_REMEDY)


def _check_generation(output: str, where: str, remedy: str) -> OpenCodeVersion:
    version = parse_version(output)
    if version is None:
        raise UnsupportedVersion(
            f"{where} does not report its version of {OPENCODE_NAME} ({output[-100:]!r}): {remedy}"
        )
    if version.number[0] > 1 or version.is_preview:
        raise UnsupportedVersion(
            f"{where} is {OPENCODE_NAME} {version}, but go-ent works with {OPENCODE_NAME} 1 ({TESTED_RANGE}): {remedy}"
        )
    return version


async def read_version(program: Path, env: Mapping[str, str], *, patience: float) -> str:
    """The output of `--version`, cached per file; not for a wrapper, which may run any program."""
    identity = _identity(program)
    if identity and identity in _known_versions:
        return _known_versions[identity]
    done = await run_command([str(program), "--version"], cwd=Path("/"), env=env, timeout=patience)
    if done.exit is None:
        raise WorkerCrashed(
            f"{OPENCODE_NAME} was not ready within {patience:g} s: '{program} --version' did not answer",
            stderr=done.errors,
        )
    if done.exit != 0:
        raise WorkerCrashed(
            f"'{program} --version' ended with code {done.exit}: {done.errors[-500:]}",
            returncode=done.exit,
            stderr=done.errors,
        )
    if identity:
        _known_versions[identity] = done.output
    return done.output


def _identity(program: Path) -> _Identity | None:
    """None if the file is a wrapper or cannot be read."""
    try:
        seen = program.stat()
        native = is_native(program)
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns) if native else None


async def check_program(program: Path, env: Mapping[str, str], *, patience: float) -> None:
    """Check the version before every start: the file may have been replaced."""
    check_version(await read_version(program, env, patience=patience), repr(str(program)))


def is_newer_than_tested(version: OpenCodeVersion) -> bool:
    """Whether it is unknown how go-ent works with it."""
    return version.number > NEWEST_TESTED


# As OpenCode writes it.
_GITIGNORE = "node_modules\npackage.json\npackage-lock.json\nbun.lock\n.gitignore"


def opencode_data_folders(env: Mapping[str, str]) -> tuple[Path, ...]:
    """Where OpenCode keeps its sessions, cache and logs."""
    home = home_dir(env)
    bases = (
        env.get("XDG_DATA_HOME") or f"{home}/.local/share",
        env.get("XDG_CACHE_HOME") or f"{home}/.cache",
        env.get("XDG_STATE_HOME") or f"{home}/.local/state",
    )
    return tuple(Path(base, "opencode") for base in bases)


def opencode_settings_folders(env: Mapping[str, str]) -> tuple[Path, ...]:
    """The user's folders for OpenCode's settings, plugins, agents and, by some installers, its program.

    Every OpenCode runs what is in there, so workers may only read it. OpenCode does not start where
    it cannot write its `.gitignore`, so that is written here.
    """
    home = home_dir(env)
    usual = Path(env.get("XDG_CONFIG_HOME") or home / ".config", "opencode")
    with suppress(OSError):  # it may be on a read-only file system
        usual.mkdir(parents=True, exist_ok=True)
    folders = [path for path in (usual, home / ".opencode") if path.is_dir()]
    for folder in folders:
        with suppress(OSError), (folder / ".gitignore").open("x") as file:  # it usually exists
            file.write(_GITIGNORE)
    return tuple(folders)
