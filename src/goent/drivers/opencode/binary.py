"""Where is OpenCode, and where is the ripgrep that its search tools need?

`opencode` on the PATH may be npm's launcher, and after `npm install --ignore-scripts` that is a
stub which only prints an error. The program itself lies in a platform package beside it.
"""

import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from goent.domain.errors import OpenCodeMissing
from goent.proc.programs import find_program

OPENCODE = "opencode"
NATIVE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # ELF, Mach-O, universal Mach-O
NODE_MODULES = "node_modules"
STUB = b"postinstall script was not run"
SECOND = "@opencode"  # whose packages are OpenCode 2; those of OpenCode 1 may lie beside them
REMEDY = (
    "install it with `npm install -g opencode-ai@1`, "
    "or name the program: GOENT_OPENCODE=/path/to/opencode"
)


def find_opencode(command: str | None, environ: Mapping[str, str]) -> Path:
    """The program that the setting, `GOENT_OPENCODE` or the PATH names, in this order."""
    wanted = command or environ.get("GOENT_OPENCODE") or OPENCODE
    found = find_program(str(Path(wanted).expanduser()), environ)
    if found is None:
        raise OpenCodeMissing(f"there is no program {wanted!r}: {REMEDY}")
    return _program(Path(found))


def find_ripgrep(opencode: Path, environ: Mapping[str, str]) -> Path | None:
    """`rg` on the PATH, or the one that npm installed with OpenCode. A repository's is never run."""
    if found := find_program("rg", environ):
        return Path(found)
    return next(_beside(opencode, f"@vscode/ripgrep-{_system()}-{_machine()}/bin/rg"), None)


def is_native(program: Path) -> bool:
    """Whether the file is the program itself, and no script that leads to it."""
    return _head(program).startswith(NATIVE)


def _head(program: Path) -> bytes:
    with program.open("rb") as file:
        return file.read(4096)


def _program(found: Path) -> Path:
    path = found.resolve()
    head = _head(path)
    if head.startswith(NATIVE):
        return path
    for name in () if SECOND in path.parts else platform_packages():
        for program in _beside(path, f"{name}/bin/opencode"):
            return program
    if STUB in head:
        raise OpenCodeMissing(f"{str(path)!r} is npm's stub without its program: {REMEDY}")
    return path  # somebody's own wrapper


def platform_packages() -> tuple[str, ...]:
    """The packages whose program runs on this machine, best first."""
    base = f"opencode-{_system()}-{_machine()}"
    builds = ("", "-baseline") if _has_avx2() else ("-baseline",)
    builds = builds if _machine() == "x64" else ("",)
    libc = "-musl" if _is_musl() else ""
    return tuple(f"{base}{build}{libc}" for build in builds)


def _beside(program: Path, inside: str) -> Iterator[Path]:
    """In the installation that the program is part of: in any `node_modules` that it lies in.

    A program that npm did not install has none. What lies further up, or around the work, somebody
    else may have put there.
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
