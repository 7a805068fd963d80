"""Can these suites be run as they are asked for? Whatever a run refuses is refused here, before anything starts."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from goent.config.known import SHORT_NAMES, known_backend
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
        judges = judges_of(prepared)
        needed |= judges
        check_judges(judges, prepared.specs, project, environ)
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


def check_judges(
    judges: Mapping[str, TargetSpec],
    targets: Mapping[str, TargetSpec],
    project: Path,
    environ: Mapping[str, str],
) -> None:
    """Those who are no targets are models of providers that there could be. Raises `ConfigError`.

    A daemon may have keys that we have not: only a name that nobody knows is refused.
    """
    models = [name for name in judges if name not in targets]
    if not models:
        return
    settings = load_settings(project, environ)
    names = {provider.name for provider in settings.providers}
    known = names | settings.backends.keys() | settings.agents.keys()
    strange = {
        name: provider
        for name in models
        if (provider := name.partition("/")[0]) not in known
        and provider not in SHORT_NAMES
        and not known_backend(provider)
    }
    there = f"there are: {', '.join(sorted(names))}" if names else "see `go-ent providers`"
    if strange:
        raise ConfigError(
            "\n".join(
                f"judge {name!r}: no provider is called {provider!r}; {there}"
                for name, provider in strange.items()
            )
        )


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
