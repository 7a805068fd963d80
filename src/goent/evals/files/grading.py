"""Which graders does a file hold, for attempts that were made without it?"""

from collections.abc import Mapping
from pathlib import Path

from goent.config.fields import Fields, read_table
from goent.config.tree import Items, Problems, Table
from goent.evals.files.graders import LISTS, counts, read_graders
from goent.evals.files.texts import Source
from goent.evals.suites import GraderSpec


def load_graders(path: Path, environ: Mapping[str, str]) -> tuple[GraderSpec, ...]:
    """A list of graders, or one under `assertions`. Raises one `ConfigError` with every mistake."""
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
    problems.check()
    return found


def _listed(fields: Fields, source: Source) -> tuple[GraderSpec, ...]:
    key = fields.one_of(*LISTS)
    return read_graders(fields.node(key) if key else None, source)
