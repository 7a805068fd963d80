"""What does the directory of an attempt begin with, and what runs around it?"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from goent.config.fields import Fields, read_table
from goent.config.tree import Items, Node, Table, describe, merge_tables
from goent.evals.files.hooks import is_folder, read_hooks, seen_from
from goent.evals.files.repositories import read_origin
from goent.evals.files.texts import Source
from goent.evals.suites import WorkspaceSpec

_BEGINNINGS: Final = frozenset({"template", "repository", "repos"})
_INSTEAD: Final[Mapping[str, str]] = {
    "path": "use template, which is copied for each attempt",
    "docker": "commands run on this machine",
    "env": "check what has to be there in a before_all hook",
}


def workspace_table(node: Node | None, source: Source) -> Table | None:
    """The settings of a workspace: written here, or in a file that is named here."""
    if node is None or isinstance(node, Table):
        return node
    if isinstance(node, Items):
        source.problems.note(node.place, f"expected a table or a path, not {describe(node)}")
        return None
    return source.table(Path(node.place.file).parent / node.text, node.place)


def read_workspace(shared: Table | None, own: Table | None, source: Source) -> WorkspaceSpec | None:
    """The suite's workspace, with what a case says otherwise. None where nothing runs in it."""
    if not source.running:
        return None
    if shared and own:
        own = merge_tables(
            _without_beginning(shared) if _BEGINNINGS & own.entries.keys() else shared, own
        )
    table = own or shared
    if table is None:
        return None
    return read_table(table, lambda fields: _workspace(fields, source), source.problems)


def _without_beginning(shared: Table) -> Table:
    """A case that begins with something else begins with that alone."""
    entries = {
        key: node for key, node in shared.entries.items() if key not in {*_BEGINNINGS, "ref"}
    }
    return Table(place=shared.place, entries=entries)


def _workspace(fields: Fields, source: Source) -> WorkspaceSpec:
    fields.text("name", None)
    _check_kind(fields)
    template, origin = _template(fields), read_origin(fields, source)
    if fields.has("template") and origin.repository:
        key = "repos" if fields.has("repos") else "repository"
        fields.mistake(key, "there is a template as well; keep one of them")
    hooks = fields.section("hooks", lambda inner: read_hooks(inner, template))
    return WorkspaceSpec(template=template, repository=origin.repository, ref=origin.ref, **hooks)


def _check_kind(fields: Fields) -> None:
    """AgentV knows others than a directory that is made for each attempt, and removed after it."""
    isolation = fields.text("isolation", None)
    if isolation not in (None, "per_test"):
        fields.mistake("isolation", f"{isolation!r} is not supported; each attempt has its own")
    mode = fields.text("mode", "temp")
    # With a workspace for each test, AgentV takes none from its pool either.
    if mode != "temp" and (mode, isolation) != ("pooled", "per_test"):
        fields.mistake("mode", f"{mode!r} is not supported; a workspace is made for each attempt")
    for key, instead in _INSTEAD.items():
        if fields.has(key):
            fields.mistake(key, f"is not supported; {instead}")


def _template(fields: Fields) -> Path | None:
    mention = fields.mention("template")
    if mention is None:
        return None
    path = seen_from(mention.place, mention.name)
    if is_folder(path):
        return path.resolve()
    fields.mistake("template", f"there is no folder {str(path)!r}")
    return None
