"""Whom do the cases of a suite ask, under which names, and is what they need there?"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from goent.config.tree import suggestion
from goent.evals.files.cases import Alias
from goent.evals.files.hooks import is_folder
from goent.evals.files.texts import Source
from goent.evals.files.trees import heard
from goent.evals.suites import Case, TargetSpec
from goent.evals.targets.settings import home_of

USUAL: Final = "default"  # who is asked where nobody is named


def aliases(
    cases: Sequence[Case], known: Mapping[str, TargetSpec], source: Source, asked: Sequence[str]
) -> dict[str, TargetSpec]:
    """The names that suites give targets, as AgentV has it: the targets file has the first say.

    Where others are `asked`, it is no matter what stands behind a name.
    """
    named: dict[str, Alias] = {}
    for case in cases:
        for one in source.targets.get((case.suite, case.place), ()):
            if isinstance(one, Alias) and one.name not in known:
                first = named.setdefault(one.name, one)
                if first.of.name != one.of.name:
                    where = f"{first.place.file}:{first.place.line}"
                    words = f"{one.name!r} stands for {first.of.name!r} at {where}"
                    source.problems.note(one.place, f"{words}; give one another name")
    found: dict[str, TargetSpec] = {}
    for name, alias in named.items():
        meant = _meant(alias, named)
        if meant in known:
            found[name] = replace(known[meant], name=name)
        elif not asked or name in asked:
            source.problems.note(alias.of.place, unknown_target(meant, known))
    return found


def _meant(alias: Alias, named: Mapping[str, Alias]) -> str:
    """In the end: another name may stand for a name of the same kind."""
    passed = {alias.name}
    while (name := alias.of.name) in named and name not in passed:
        passed.add(name)
        alias = named[name]
    return alias.of.name


def check_folders(
    case: Case, names: Sequence[str], known: Mapping[str, TargetSpec], source: Source
) -> None:
    """Where commands are run: their own folders are seen from the suite, those of checks from the targets."""
    for spec in _asked(names, known):
        for key, folder in _folders(spec, case):
            if not source.once(("folder", folder), lambda at=folder: is_folder(at)):
                place = heard(spec.place).below(key)
                seen = ", as seen from the suite" if key == "cwd" else ""
                source.problems.note(place, f"there is no folder {str(folder)!r}{seen}")


def _asked(names: Sequence[str], known: Mapping[str, TargetSpec]) -> Iterator[TargetSpec]:
    """With who stands in for them."""
    usual = (USUAL,) if USUAL in known else tuple(known) if len(known) == 1 else ()
    for name in names or usual:
        if name in known:
            yield from (known[one] for one in (name, *known[name].fallbacks) if one in known)


def _folders(spec: TargetSpec, case: Case) -> Iterator[tuple[str, Path]]:
    if spec.kind != "cli":
        return
    if isinstance(cwd := spec.settings.get("cwd"), str):
        yield "cwd", Path(case.place.file).parent.absolute() / cwd
    check: object = spec.settings.get("healthcheck")
    if isinstance(check, dict) and isinstance(cwd := check.get("cwd"), str):  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] (from a file)
        yield "healthcheck.cwd", home_of(spec) / cwd


def unknown_target(name: str, known: Mapping[str, TargetSpec]) -> str:
    """What is said of a name that nobody has."""
    remedy = suggestion(name, known) if known else "write it to .goent/targets.yaml"
    return f"there is no target {name!r}; {remedy}"
