"""The sandbox as other rooms see it: levels, settings, and the port that starts commands inside."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal, Protocol

from goent.domain.types import Value

SandboxLevelName = Literal["namespace", "landlock", "none"]
_LEVELS_BY_STRENGTH: tuple[SandboxLevelName, ...] = ("namespace", "landlock", "none")
SandboxStrictness = Literal["auto", "landlock", "off"]
ReadAccess = Literal["all", "listed"]
NetworkAccess = Literal["all", "gateway", "off"]


class SandboxSettings(Value, frozen=True, kw_only=True):
    """The `sandbox:` block. `level` is the best that may be used; `off` confines nothing."""

    level: SandboxStrictness = "auto"
    writable: tuple[Path, ...] = ()
    read: ReadAccess = "all"
    readable: tuple[Path, ...] = ()
    network: NetworkAccess = "all"


def weaker_level(
    one: SandboxLevelName | None, other: SandboxLevelName | None
) -> SandboxLevelName | None:
    """The weaker of two levels; None if there was nothing to confine."""
    if one is None or other is None:
        return one or other
    return _LEVELS_BY_STRENGTH[
        max(_LEVELS_BY_STRENGTH.index(one), _LEVELS_BY_STRENGTH.index(other))
    ]


class SandboxLevel(Value, frozen=True, kw_only=True):
    """How processes are confined on this machine; `reason` says why not better."""

    name: SandboxLevelName
    reason: str = ""


class ConfinedCommand(Value, frozen=True, kw_only=True):
    """What to start instead of a command, so that it runs inside the sandbox.

    All processes inside carry `mark`, if they have mounts of their own. `explain` turns the output of a failed
    command into a hint about what the sandbox refused and which setting allows it; empty if it was not the
    cause.
    """

    command: tuple[str, ...]
    env: Mapping[str, str]
    mark: str = ""
    explain: Callable[[str], str] = lambda _: ""


class CommandAccess(Value, frozen=True, kw_only=True):
    """What a command can write, and what it must be able to read.

    `writable` is None for the checkout around its working directory; `also` is writable as well. `handed` are
    go-ent's own files and folders that it may read, although go-ent's folders are hidden from it. `named` are
    others that it refers to: they stay visible inside a temporary folder.
    """

    writable: tuple[Path, ...] | None = None
    also: tuple[Path, ...] = ()
    handed: tuple[Path, ...] = ()
    named: tuple[Path, ...] = ()


CHECKOUT_ACCESS = CommandAccess()
NOT_STARTED_EXIT = 126  # with a message that begins with the prefix below
_START_FAILURE_PREFIX = "go-ent: "


def start_failure(exit_code: int | None, errors: str) -> str:
    """Why a confined command was not started; empty if it was."""
    if exit_code != NOT_STARTED_EXIT or not errors.startswith(_START_FAILURE_PREFIX):
        return ""
    return errors.removeprefix(_START_FAILURE_PREFIX)


class CommandSandbox(Protocol):
    """Starts commands that work for a worker: verify commands, hooks, graders."""

    async def level(self) -> SandboxLevel:
        """The level of confinement now."""
        ...

    def command(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        reach: CommandAccess = CHECKOUT_ACCESS,
    ) -> AbstractAsyncContextManager[ConfinedCommand]:
        """How to start a command. Its temporary folder is removed on leaving.

        Raises `OSError` if there is no such program.
        """
        ...
