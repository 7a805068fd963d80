"""What does the directory of an attempt begin with, and what runs around it?"""

from pathlib import Path
from typing import Final

from goent.config.fields import Fields, read_table
from goent.config.tree import Items, Node, Place, Scalar, Table, describe, merge_tables
from goent.evals.files.texts import Source
from goent.evals.suites import Hook, WorkspaceSpec

_BEGINNINGS: Final = frozenset({"template", "repository"})


def workspace_table(node: Node | None, source: Source) -> Table | None:
    """The settings of a workspace: written here, or in a file that is named here."""
    if node is None or isinstance(node, Table):
        return node
    if isinstance(node, Items):
        source.problems.note(node.place, f"expected a table or a path, not {describe(node)}")
        return None
    return source.table(Path(node.place.file).parent / node.text, node.place)


def read_workspace(shared: Table | None, own: Table | None, source: Source) -> WorkspaceSpec | None:
    """The suite's workspace, with what a case says otherwise."""
    if shared and own:
        own = merge_tables(
            _without_beginning(shared) if _BEGINNINGS & own.entries.keys() else shared, own
        )
    table = own or shared
    return read_table(table, _workspace, source.problems) if table else None


def _without_beginning(shared: Table) -> Table:
    """A case that begins with something else begins with that alone."""
    entries = {
        key: node for key, node in shared.entries.items() if key not in {*_BEGINNINGS, "ref"}
    }
    return Table(place=shared.place, entries=entries)


def _workspace(fields: Fields) -> WorkspaceSpec:
    fields.text("name", None)
    isolation = fields.text("isolation", "per_test")
    if isolation != "per_test":
        fields.mistake("isolation", f"{isolation!r} is not supported; each attempt has its own")
    mode = fields.text("mode", "temp")
    if mode != "temp":
        fields.mistake("mode", f"{mode!r} is not supported; a workspace is made for each attempt")
    for key in ("repos", "path", "docker"):
        if fields.has(key):
            fields.mistake(key, "is not supported; use template, or repository and ref")
    hooks = fields.section("hooks", _hooks)
    template, repository, ref = _template(fields), _repository(fields), fields.text("ref", "")
    if fields.has("template") and fields.has("repository"):
        fields.mistake("repository", "there is a template as well; keep one of them")
    if ref and not fields.has("repository"):
        fields.mistake("ref", "says nothing without a repository")
    if ref.startswith("-"):
        fields.mistake("ref", f"{ref!r} is no name of a commit")
    return WorkspaceSpec(
        template=template,
        repository=repository,
        ref=ref,
        before_all=hooks["before_all"],
        before_each=hooks["before_each"],
        after_each=hooks["after_each"],
        after_all=hooks["after_all"],
    )


def _template(fields: Fields) -> Path | None:
    mention = fields.mention("template")
    if mention is None:
        return None
    path = _from(mention.place, mention.name)
    try:
        if path.is_dir():
            return path.resolve()
    except (OSError, ValueError):
        pass
    fields.mistake("template", f"there is no folder {str(path)!r}")
    return None


def _repository(fields: Fields) -> str:
    """A folder, seen from the file; or an address as git takes it."""
    mention = fields.mention("repository")
    if mention is None:
        return ""
    path = _from(mention.place, mention.name)
    try:
        if path.is_dir():
            return str(path.resolve())
    except (OSError, ValueError):
        pass
    if ":" in mention.name.partition("/")[0] and not mention.name.startswith("-"):
        return mention.name
    fields.mistake(
        "repository", f"{mention.name!r} is no address, and there is no folder {str(path)!r}"
    )
    return ""


def _hooks(fields: Fields) -> dict[str, Hook | None]:
    names = ("before_all", "before_each", "after_each", "after_all")
    return {name: fields.section(name, _hook) if fields.has(name) else None for name in names}


def _hook(fields: Fields) -> Hook | None:
    key = fields.one_of("command", "script")
    node = fields.node(key) if key else None
    words = fields.texts(key) if key else ()
    if key is None:
        fields.mistake("command", "is missing; say what to run")
    elif isinstance(node, Items) and not node.items:
        fields.mistake(key, "says nothing to run")
    command = ("sh", "-c", *words) if isinstance(node, Scalar) else words
    cwd = fields.mention("cwd")
    timeout_s = _timeout(fields)
    if not words:
        return None
    return Hook(
        command=command,
        timeout_s=timeout_s,
        cwd=_from(cwd.place, cwd.name).absolute() if cwd else None,
    )


def _timeout(fields: Fields) -> float:
    key = fields.one_of("timeout_ms", "timeout_seconds", "timeout_s")
    if key is None:
        return 120.0
    value = fields.amount(key, None, above=True)
    if value is None:
        return 120.0
    return value / 1000 if key == "timeout_ms" else value


def _from(place: Place, name: str) -> Path:
    return Path(place.file).parent / name
