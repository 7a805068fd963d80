"""Defines what declares a kind of target: its settings, how it is opened, and what it may do."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from goent.domain.types import Value
from goent.evals.eval_ports import EvalTarget, OpenDaemon
from goent.evals.suites import EvalCase, TargetSpec

if TYPE_CHECKING:
    from goent.evals.targets.opencode_target_servers import EvalServers


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetTools:
    """What targets are opened with. `environ` has no provider keys; temporary files go to `scratch`."""

    environ: Mapping[str, str]
    scratch: Path
    open_daemon: OpenDaemon
    opencode_servers: "EvalServers | None" = None


class TargetKind(Value, frozen=True, kw_only=True):
    """One kind of target. `mistakes` checks its settings, and yields paths and messages.

    `harmless` are settings that need no trust in the project. `reads_settings`: it depends on the
    project's settings. `check` raises a `ConfigError` before a run. `files` are what it reads, `folders`
    those that must exist, by setting. `conversation_obstacle` says why it cannot have a conversation,
    `no_status` why its failures have no HTTP status. AgentV also has the `unsupported` settings.
    """

    name: str
    setting_names: tuple[str, ...]
    mistakes: Callable[[Mapping[str, object]], Iterable[tuple[str, str]]]
    open: Callable[[TargetSpec, TargetTools], EvalTarget]
    harmless: frozenset[str] = frozenset()
    is_agent: bool = False
    is_confined: bool = True
    reads_settings: bool = False
    check: Callable[[TargetSpec], object] = lambda _: None
    files: Callable[[TargetSpec], Iterable[Path]] = lambda _: ()
    folders: Callable[[TargetSpec, EvalCase], Iterable[tuple[str, Path]]] = lambda _, __: ()
    conversation_obstacle: Callable[[TargetSpec], str] = lambda _: ""
    no_status: str = ""
    unsupported: tuple[str, ...] = ()
