"""Which graders does a file hold, for attempts that were made without it?"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from goent.config.fields import Fields, read_table
from goent.config.tree import Items, Problems, Table
from goent.evals.files.asked import unknown_target
from goent.evals.files.cases import try_graders
from goent.evals.files.graders import LISTS, counts, read_graders
from goent.evals.files.texts import Source
from goent.evals.files.validating import judges_named
from goent.evals.suites import Case, GraderSpec, TargetSpec


def load_graders(
    path: Path,
    environ: Mapping[str, str],
    *,
    cases: Iterable[Case],
    targets: Mapping[str, TargetSpec],
    compat: bool,
) -> tuple[GraderSpec, ...]:
    """A list of graders, or one under `assertions`, for these cases; `targets` may judge.

    Raises one `ConfigError` with every mistake, which are those that a suite would be refused for.
    """
    problems = Problems()
    source = Source(environ, problems)
    node = source.document(path)
    found: tuple[GraderSpec, ...] = ()
    if isinstance(node, Table):
        found = read_table(node, lambda fields: _listed(fields, source), problems)
    elif isinstance(node, Items):
        found = read_graders(node, source)
    if node is not None and not any(map(counts, found)):
        problems.note(node.place, "holds no grader that could have a say: assertions: [{type: …}]")
    for place, name in judges_named(found):
        if name not in targets:
            problems.note(place, unknown_target(name, targets))
    for case in () if compat else cases:
        graded = replace(case, graders=found, conversation=None)
        try_graders(graded, source, sound=False)
    problems.check()
    return found


def _listed(fields: Fields, source: Source) -> tuple[GraderSpec, ...]:
    key = fields.one_of(*LISTS)
    return read_graders(fields.node(key) if key else None, source)
