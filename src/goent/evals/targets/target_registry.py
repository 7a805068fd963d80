"""Finds kinds of targets by name. Each is declared once, in the module that evaluates it."""

from collections.abc import Mapping
from typing import Final

from goent.domain.errors import ConfigError
from goent.evals.eval_ports import EvalTarget
from goent.evals.suites import TargetSpec
from goent.evals.targets.command_target import COMMAND_KIND
from goent.evals.targets.fixture_targets import FIXTURE_KINDS
from goent.evals.targets.goent_target import GOENT_KIND
from goent.evals.targets.opencode_target_settings import OPENCODE_SETTING_NAMES, opencode_mistakes
from goent.evals.targets.target_kind import TargetKind, TargetTools


def _open_opencode(spec: TargetSpec, tools: TargetTools) -> EvalTarget:
    from goent.evals.targets.opencode_target import OpenCodeTarget  # noqa: PLC0415 (only if used)

    assert tools.opencode_servers is not None
    return OpenCodeTarget(spec, tools.opencode_servers)


OPENCODE_KIND: Final = TargetKind(
    name="opencode",
    setting_names=OPENCODE_SETTING_NAMES,
    mistakes=opencode_mistakes,
    open=_open_opencode,
    harmless=frozenset(
        {
            *("model", "variant", "agent", "system_prompt", "timeout_seconds"),
            *("startup_timeout_seconds", "shared_server", "stream_logs", "profile"),
        }
    ),
    is_agent=True,
    reads_settings=True,
)

TARGET_KINDS: Final[Mapping[str, TargetKind]] = {
    kind.name: kind for kind in (COMMAND_KIND, *FIXTURE_KINDS, GOENT_KIND, OPENCODE_KIND)
}


def is_agent(spec: TargetSpec) -> bool:
    """Whether it works in a directory, remembers what was said, and has a provider behind it."""
    return spec.kind in TARGET_KINDS and TARGET_KINDS[spec.kind].is_agent


def target_kind(spec: TargetSpec) -> TargetKind:
    """Raises `ConfigError` for a kind that only AgentV has."""
    if kind := TARGET_KINDS.get(spec.kind):
        return kind
    raise ConfigError(
        f"{spec.place.file}:{spec.place.line or 1}: target {spec.name!r}: go-ent cannot run "
        f"{spec.kind!r}; use {', '.join(TARGET_KINDS)}"
    )
