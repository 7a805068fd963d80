"""Where is OpenCode, and where is the ripgrep that its search tools need?

`opencode` on the PATH may be npm's launcher, and after `npm install --ignore-scripts` that is a
stub which only prints an error. The program itself lies in a platform package beside it.
"""

import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from goent.domain.errors import OpenCodeMissing
from goent.proc import run

NATIVE = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")  # ELF, Mach-O, universal Mach-O
STUB = b"postinstall script was not run"
REMEDY = (
    "install it with `npm install -g opencode-ai`, "
    "or name the program: GOENT_OPENCODE=/path/to/opencode"
)


def find_opencode(command: str | None, environ: Mapping[str, str]) -> Path:
    """The program that the setting, `GOENT_OPENCODE` or the PATH names, in this order."""
    wanted = command or environ.get("GOENT_OPENCODE") or "opencode"
    found = shutil.which(str(Path(wanted).expanduser()), path=environ.get("PATH"))
    if found is None:
        raise OpenCodeMissing(f"there is no program {wanted!r}: {REMEDY}")
    return _program(Path(found))


def find_ripgrep(opencode: Path, cwd: Path, environ: Mapping[str, str]) -> Path | None:
    """`rg` on the PATH, or the one that npm put near OpenCode or near the work."""
    if found := shutil.which("rg", path=environ.get("PATH")):
        return Path(found)
    package = f"@vscode/ripgrep-{_system()}-{_machine()}/bin/rg"
    return next(_in_node_modules(package, opencode, cwd), None)


async def opencode_version(opencode: Path, environ: Mapping[str, str]) -> str:
    """What the program says of itself; for the doctor, it takes a second."""
    done = await run([str(opencode), "--version"], cwd=Path("/"), env=environ, timeout=30)
    if done.exit != 0:
        raise OpenCodeMissing(f"{str(opencode)!r} does not run: {done.errors[-500:]}; {REMEDY}")
    return done.output.strip()


def _program(found: Path) -> Path:
    path = found.resolve()
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(NATIVE):
        return path
    for name in platform_packages():
        for program in _in_node_modules(f"{name}/bin/opencode", path):
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


def _in_node_modules(inside: str, *starts: Path) -> Iterator[Path]:
    for start in starts:
        for folder in (start, *start.parents):
            candidate = folder / "node_modules" / inside
            if candidate.is_file():
                yield candidate


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
