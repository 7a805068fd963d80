"""Does the checkout keep the promises that no module can keep alone?"""

import ast
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import goent
from setup import SetupFailed, locked_packages, opencode_package, version_of

ROOT = Path(__file__).parent.parent
FOLDERS = (".ci", "bench", "docs", "requirements", "scripts", "src", "tests")
LOCKS = sorted((ROOT / "requirements").glob("*.lock"))
PACKAGE_LOCK = ROOT / "package-lock.json"
CLIENTS_LOCK = ROOT / "tests/npm/package-lock.json"
MAX_LINES = 700


def written_files() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_file())
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and not {"__pycache__", "node_modules"} & {*path.parts}:
                yield path


def python_files() -> list[Path]:
    return [path for path in written_files() if path.suffix == ".py"]


def pins(name: str) -> dict[str, str]:
    lock = (ROOT / "requirements" / f"{name}.lock").read_text()
    return dict(re.findall(r"^([\w.-]+)==(\S+)", lock, re.MULTILINE))


def local(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# Locks


@pytest.mark.parametrize("lock", [*LOCKS, PACKAGE_LOCK, CLIENTS_LOCK], ids=local)
def test_a_lock_names_no_registry(lock: Path):
    text = re.sub(r'"funding": \{[^}]*\}', "", lock.read_text())
    assert "://" not in text
    assert '"resolved"' not in text
    assert not re.search(r"^\s*(--(?!hash=)|-[a-z]\b)", text, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS, ids=local)
def test_every_pin_has_a_hash(lock: Path):
    _, *pinned = re.split(r"^(?=\S+==)", lock.read_text(), flags=re.MULTILINE)
    assert pinned
    assert [pin for pin in pinned if "--hash=sha256:" not in pin] == []


@pytest.mark.parametrize("name", ["run", "node"])
def test_the_locks_agree(name: str):
    ours, developed = pins(name), pins("dev")
    shared = ours.keys() & developed.keys()
    assert {package: ours[package] for package in shared} == {
        package: developed[package] for package in shared
    }


def test_what_runs_is_also_developed_with():
    assert pins("run").keys() <= pins("dev").keys()


def test_every_dependency_is_locked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["build-system"]["requires"]
    names = {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in wanted}
    assert names <= pins("run").keys()


def test_the_checkout_is_built_with_the_backend_that_a_release_is_built_with():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["dependency-groups"]["build"] == project["build-system"]["requires"]


@pytest.mark.parametrize(
    ("machine", "avx2", "musl", "package"),
    [
        (("linux", "x64"), True, False, "opencode-linux-x64"),
        (("linux", "x64"), False, False, "opencode-linux-x64-baseline"),
        (("linux", "x64"), True, True, "opencode-linux-x64-musl"),
        (("linux", "x64"), False, True, "opencode-linux-x64-baseline-musl"),
        (("linux", "arm64"), False, False, "opencode-linux-arm64"),
        (("linux", "arm64"), False, True, "opencode-linux-arm64-musl"),
        (("darwin", "x64"), True, False, "opencode-darwin-x64"),
        (("darwin", "x64"), False, False, "opencode-darwin-x64-baseline"),
        (("darwin", "arm64"), False, False, "opencode-darwin-arm64"),
    ],
)
def test_each_machine_has_an_opencode_and_a_ripgrep(
    machine: tuple[str, str], avx2: bool, musl: bool, package: str
):
    ripgrep = f"@vscode/ripgrep-{'-'.join(machine)}"
    assert opencode_package(*machine, avx2=avx2, musl=musl) == package
    assert len(locked_packages(PACKAGE_LOCK, [package, ripgrep])) == 2


def test_a_machine_that_the_lock_does_not_know_is_told_so():
    with pytest.raises(SetupFailed, match="opencode-plan9-x64"):
        locked_packages(PACKAGE_LOCK, ["opencode-plan9-x64"])


def test_what_npm_installs_is_checked_against_our_lock():
    (entry,) = locked_packages(PACKAGE_LOCK, ["opencode-linux-x64"]).values()
    assert entry.get("integrity", "").startswith("sha512-")


def test_every_package_that_the_tests_drive_the_agent_with_has_a_hash():
    packages = json.loads(CLIENTS_LOCK.read_text())["packages"]
    del packages[""]
    assert packages
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())


@pytest.mark.parametrize(
    ("script", "answer"),
    [
        ("echo 1.18.33", "1.18.33"),
        ("echo 'the postinstall script was not run' >&2; exit 1", None),
    ],
)
def test_an_opencode_counts_as_installed_when_it_answers(
    tmp_path: Path, script: str, answer: str | None
):
    program = tmp_path / "opencode"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    assert version_of(str(program)) == answer


# Commands


def test_make_lists_every_target():
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)[0].split()
    listed = subprocess.run(
        ["make", "-s", "-C", str(ROOT)], capture_output=True, text=True, check=True
    ).stdout
    assert re.findall(r"^make (\w+)", listed, re.MULTILINE) == targets


def test_continuous_integration_is_one_executable():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


# The package


def test_the_installed_version_is_the_one_in_the_source():
    assert importlib.metadata.version("go-ent") == goent.__version__


@pytest.mark.parametrize(
    "module", ["goent", "goent.daemon.daemon_connection", "goent.system.project_folders"]
)
def test_what_starts_first_is_silent_and_needs_only_the_standard_library(module: str):
    loaded = "{name.partition('.')[0] for name in sys.modules}"
    script = f"import sys; before = {loaded}; import {module}; sys.exit(str({loaded} - before))"
    done = subprocess.run(
        [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert done.returncode == 1
    assert done.stderr.startswith(("{", "set()")), done.stderr
    assert set(re.findall(r"'(\w+)'", done.stderr)) - sys.stdlib_module_names == {"goent"}


# The text


@pytest.mark.parametrize("path", python_files(), ids=local)
def test_a_module_can_be_read_in_one_sitting(path: Path):
    assert len(path.read_text().splitlines()) < MAX_LINES


def test_a_spec_mark_names_scenarios():
    marks = [
        (local(path), argument)
        for path in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.spec"
        for argument in node.args
    ]
    for place, argument in marks:
        assert isinstance(argument, ast.Constant), place
        assert re.fullmatch(r"[PAE]\d\d", str(argument.value)), (place, argument.value)


def test_no_file_knows_where_it_was_written():
    home = Path.home()
    # A checkout in /app, or a home that is /, has a path that any text may contain.
    places = [*([ROOT] if len(ROOT.parts) > 2 else []), *([home] if home.name else [])]
    here = re.compile("|".join(rf"(?<![\w.]){re.escape(str(place))}/" for place in places))
    for path in written_files():
        assert not (places and here.search(path.read_text(errors="replace"))), local(path)
