"""Can these suites be run as they are asked for? Whatever a run refuses is refused here, before anything starts."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from goent.config.load import load_settings
from goent.domain.errors import ConfigError
from goent.evals.files.targets import KINDS
from goent.evals.running.judges import judges_of
from goent.evals.running.plan import Wanted, in_use
from goent.evals.running.preparing import Prepared, prepare
from goent.evals.suites import TargetSpec
from goent.evals.targets.opencode.settings import port_clashes
from goent.evals.targets.replay import ReplayTarget

# The project's settings say how the one is asked, and which variables are keys that the other must not see.
BY_SETTINGS: Final = ("opencode", "cli")


def ready(
    paths: Sequence[Path],
    environ: Mapping[str, str],
    wanted: Wanted,
    *,
    project: Path,
    targets_file: Path | None = None,
) -> Prepared:
    """As `prepare`; whoever is needed to answer or to judge is known, and can be asked. Raises `ConfigError`.

    `project` is the one whose settings a run obeys.
    """
    prepared = prepare(paths, environ, wanted, targets_file=targets_file)
    mistakes: list[str] = []
    needed = in_use(prepared.trials, prepared.specs)
    with _noted(mistakes):
        needed |= judges_of(prepared)
    for spec in needed.values():
        with _noted(mistakes):
            _check(spec)
    mistakes += port_clashes(needed.values())
    if any(spec.kind in BY_SETTINGS for spec in needed.values()):
        with _noted(mistakes):
            load_settings(project, environ)
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return prepared


@contextmanager
def _noted(mistakes: list[str]) -> Generator[None]:
    try:
        yield
    except ConfigError as error:
        mistakes.append(str(error))


def _check(spec: TargetSpec) -> None:
    if spec.kind not in KINDS:
        raise not_asked(spec)
    if spec.kind == "replay":
        ReplayTarget(spec)  # its recordings must be there, and be some


def not_asked(spec: TargetSpec) -> ConfigError:
    """Why nobody can open this target."""
    return ConfigError(
        f"{spec.place.file}:{spec.place.line or 1}: target {spec.name!r}: go-ent cannot ask {spec.kind!r}; "
        f"use {', '.join(KINDS)}"
    )
