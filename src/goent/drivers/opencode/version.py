"""Which OpenCode is it, and does go-ent work with it?

The installer of OpenCode 2 replaces the program of OpenCode 1 under the same name, also while go-ent
runs. Its `run` hands the work to a background service that all its user's sessions share, past our
gate. So every program says its version before it is started, and once more when it answers.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from goent.domain.errors import UnsupportedVersion, WorkerCrashed
from goent.domain.types import Value
from goent.drivers.opencode.binary import REMEDY, is_native
from goent.proc import run

NAME = "OpenCode"
OLDEST = (1, 18, 3)  # older ones can lose the end of an answer, or report a failure as a success
NEWEST = (1, 18, 34)  # that was tried
TESTED = "tested with 1.18.3 to 1.18.34"
OF_AGENT = "name an OpenCode 1 there (`npm install -g opencode-ai@1`)"
_NUMBER = re.compile(r"(?<![\w.])v?(\d{1,6})\.(\d{1,6})\.(\d{1,6})(-\S+)?")
_Identity = tuple[int, int, int, int]
_known: dict[_Identity, str] = {}


class Version(Value, frozen=True, kw_only=True):
    """A number, and what is after it in a build that is no release."""

    number: tuple[int, int, int]
    build: str = ""

    def __str__(self) -> str:
        return ".".join(map(str, self.number)) + self.build

    @property
    def is_preview(self) -> bool:
        """Built from a branch: it does not tell of which generation it is."""
        return self.number == (0, 0, 0)


def parse_version(said: str) -> Version | None:
    """The number in the last line; a wrapper may have said something before."""
    lines = [line for line in said.splitlines() if line.strip()]
    found = _NUMBER.search(lines[-1]) if lines else None
    if found is None:
        return None
    major, minor, patch, build = found.groups(default="")
    return Version(number=(int(major), int(minor), int(patch)), build=build)


def check_version(said: str, where: str, *, remedy: str = REMEDY) -> Version:
    """Raises `UnsupportedVersion`, with the remedy, unless go-ent works with it."""
    version = _check_generation(said, where, remedy)
    if version.number < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UnsupportedVersion(
            f"{where} is {NAME} {version}, but go-ent needs {oldest} or newer ({TESTED}): {remedy}"
        )
    return version


def check_agent(said: str, name: str) -> Version:
    """The same for the command of `agents.<name>`, whose age does not matter."""
    return _check_generation(said, f"agents.{name}", OF_AGENT)


def _check_generation(said: str, where: str, remedy: str) -> Version:
    version = parse_version(said)
    if version is None:
        raise UnsupportedVersion(
            f"{where} does not say which version of {NAME} it is ({said[-100:]!r}): {remedy}"
        )
    if version.number[0] > 1 or version.is_preview:
        raise UnsupportedVersion(
            f"{where} is {NAME} {version}, but go-ent works with {NAME} 1 ({TESTED}): {remedy}"
        )
    return version


async def read_version(program: Path, env: Mapping[str, str], *, patience: float) -> str:
    """What the program says of itself. Asked once per file; a wrapper each time, it may run another."""
    identity = _identity(program)
    if identity and identity in _known:
        return _known[identity]
    done = await run([str(program), "--version"], cwd=Path("/"), env=env, timeout=patience)
    if done.exit is None:
        raise WorkerCrashed(
            f"{NAME} was not ready within {patience:g} s: '{program} --version' did not answer",
            stderr=done.errors,
        )
    if done.exit != 0:
        raise WorkerCrashed(
            f"'{program} --version' ended with code {done.exit}: {done.errors[-500:]}",
            returncode=done.exit,
            stderr=done.errors,
        )
    if identity:
        _known[identity] = done.output
    return done.output


def _identity(program: Path) -> _Identity | None:
    """None if the file may lead to any program, or is about to be replaced."""
    try:
        seen = program.stat()
        native = is_native(program)
    except OSError:
        return None
    return (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns) if native else None


async def check_program(program: Path, env: Mapping[str, str], *, patience: float) -> None:
    """To be done before every start: the file may have been replaced since the last one."""
    check_version(await read_version(program, env, patience=patience), repr(str(program)))


def is_newer_than_tested(version: Version) -> bool:
    """Whether go-ent works with it only as far as anyone knows."""
    return version.number > NEWEST
