"""Which exact packages does this version stand on? Write it into the lock files.

Pins that still satisfy pyproject.toml and each package.json are kept; `--upgrade` lets them go.
No lock file names a registry: where packages come from is the installing machine's affair.
"""

import argparse
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from setup import (
    CLIENTS,
    INDEX_REMEDY,
    MCP_CLIENTS,
    PEERS,
    PIP,
    PYTHON,
    REGISTRY_REMEDY,
    ROOT,
    SetupFailed,
    find_npm,
    run,
)

LOCKS = ROOT / "requirements"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest of everything")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    try:
        with tempfile.TemporaryDirectory() as scratch:
            uv = install_uv(Path(scratch))
            project = ["pyproject.toml", "--group", "build"]
            compile_lock(uv, "dev", [*project, "--group", "dev", *upgrade])
            for name, sources in (
                ("run", project),
                ("node", ["--group", "node"]),
                ("fastmcp", ["--group", "fastmcp"]),
            ):
                # What uv finds in the output file it prefers: one version in every lock.
                shutil.copy(LOCKS / "dev.lock", LOCKS / f"{name}.lock")
                compile_lock(uv, name, sources)
        npm = [find_npm(), "update" if upgrade else "install", "--package-lock-only"]
        run("locking package-lock.json", npm, remedy=REGISTRY_REMEDY)
        for project in (CLIENTS, PEERS, MCP_CLIENTS):
            name = f"{project.relative_to(ROOT)}/package-lock.json"
            run(f"locking {name}", npm, remedy=REGISTRY_REMEDY, cwd=project)
    except SetupFailed as error:
        sys.exit(f"\nlocking failed: {error}")


def install_uv(folder: Path) -> str:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    run("installing uv", [*PIP, "--target", str(folder), *groups["lock"]], remedy=INDEX_REMEDY)
    return str(folder / "bin" / "uv")


def compile_lock(uv: str, name: str, sources: Sequence[str]) -> None:
    output = f"requirements/{name}.lock"
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-header"]
    run(
        f"locking {output}",
        [
            uv,
            "pip",
            "compile",
            "--python",
            str(PYTHON),
            *options,
            *sources,
            "--quiet",
            "-o",
            output,
        ],
        remedy="The lines above are uv's: which requirements do not go together.",
    )


if __name__ == "__main__":
    main()
