"""Reads what an attempt's workspace starts from, and the hooks that run around the attempt."""

import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import anyio

from goent.config.settings_tree import (
    Items,
    Mention,
    Node,
    Scalar,
    SettingPlace,
    SettingsFields,
    Table,
    describe_node,
    merge_tables,
    read_table,
)
from goent.domain.errors import EnvironmentTrouble, RequestError
from goent.domain.types import Value
from goent.evals.files.file_source import FileSource
from goent.evals.files.grader_reader import accept_all
from goent.evals.suites import Hook, WorkspaceSpec
from goent.evals.workspaces.workspace_changes import NO_REPOSITORY
from goent.git.git_command import Git
from goent.git.repository import NoRepository, find_checkout

HOOK_NAMES: Final = ("before_all", "before_each", "after_each", "after_all")
DEFAULT_HOOK_TIMEOUT_S: Final = 120.0
# A shell line that is one program with arguments: nothing is piped, chained or expanded.
_SIMPLE_COMMAND: Final = re.compile(r"\s*([\w.-]*(?:/[\w.-]+)+)(?:\s[^|&;<>$`()]*)?")


def read_hooks(fields: SettingsFields, template: Path | None) -> dict[str, Hook | None]:
    """The hooks by name; `template` is what the workspace starts from, if known."""
    if not fields.flag("enabled", default=True):
        accept_all(fields)
        return dict.fromkeys(HOOK_NAMES)
    found: dict[str, Hook | None] = {}
    is_first = True
    for name in HOOK_NAMES:
        begins = template if name.startswith("before") else None  # agents change it later
        hook = None
        if fields.has(name):
            hook = fields.section(
                name, lambda inner, at=begins, new=is_first: _read_hook(inner, at, new=new)
            )
            is_first = False
        found[name] = hook
    return found


def _read_hook(fields: SettingsFields, begins: Path | None, *, new: bool) -> Hook | None:
    """`new`: no earlier hook could have created the program."""
    # AgentV resets workspaces that tests share; here each attempt has its own.
    fields.choice("reset", ("none", "fast", "strict"), None)
    key = fields.one_of("command", "script")
    node = fields.node(key) if key else None
    words = fields.texts(key) if key else ()
    if key is None and not fields.has("reset"):
        fields.note_mistake("command", "is missing; write what to run")
    elif key and isinstance(node, Items) and not node.items:
        fields.note_mistake(key, "is empty; write what to run")
    command = ("sh", "-c", *words) if isinstance(node, Scalar) else words
    cwd = _read_folder(fields)
    timeout_s = _read_timeout(fields)
    if not words or key is None:
        return None
    if new:
        _check_program(fields, key, command, cwd or begins)
    return Hook(command=command, timeout_s=timeout_s, cwd=cwd)


def _read_folder(fields: SettingsFields) -> Path | None:
    mention = fields.mention("cwd")
    if mention is None:
        return None
    path = path_beside(mention.place, mention.name).absolute()
    if not is_folder(path):
        fields.note_mistake("cwd", f"there is no folder {str(path)!r}")
    return path


def _check_program(
    fields: SettingsFields, key: str, command: tuple[str, ...], folder: Path | None
) -> None:
    """Checks a program given by its path, if the folder it starts from is known."""
    name = command[0]
    if command[:2] == ("sh", "-c") and (line := _SIMPLE_COMMAND.fullmatch(command[-1])):
        name = line[1]
    if "/" not in name or not (folder or name.startswith("/")):
        return
    where = folder or Path("/")
    if is_folder(where) and not _is_file(where / name):
        fields.note_mistake(key, f"there is no file {name!r} in {str(where)!r}")


def _read_timeout(fields: SettingsFields) -> float:
    key = fields.one_of("timeout_ms", "timeout_seconds", "timeout_s")
    value = fields.amount(key, None, above=True) if key else None
    if value is None:
        return DEFAULT_HOOK_TIMEOUT_S
    return value / 1000 if key == "timeout_ms" else value


def path_beside(place: SettingPlace, name: str) -> Path:
    return Path(place.file).parent / name


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _is_file(path: Path) -> bool:
    try:
        return os.path.isfile(path)  # noqa: PTH113 (a Path raises for what is too long)
    except ValueError:
        return False


WORKSPACE_ITSELF: Final = ("", ".", "./")
_ONE_REPOSITORY: Final = "only one is supported, as the workspace itself; clone others in a before_all hook, or use template"


class RepositoryRef(Value, frozen=True, kw_only=True):
    """A repository that git can clone, and a commit."""

    repository: str = ""
    ref: str = ""


def read_repository(fields: SettingsFields, source: FileSource) -> RepositoryRef:
    """From `repository` and `ref`, or from AgentV's `repos`."""
    listed = fields.rows("repos", lambda inner: _listed_repository(inner, source))
    if fields.one_of("repository", "repos") == "repos":
        if len(listed) != 1:
            fields.note_mistake("repos", _ONE_REPOSITORY)
        return listed[0] if listed else RepositoryRef()
    ref = fields.mention("ref")
    if ref and not fields.has("repository"):
        fields.note_mistake("ref", "needs a repository")
    return _checked_repository(fields, ("repository", "ref"), ref.name if ref else "", source)


def _listed_repository(fields: SettingsFields, source: FileSource) -> RepositoryRef:
    path = fields.text("path", "")
    if path not in WORKSPACE_ITSELF:
        fields.note_mistake("path", f"{path!r} is not supported; {_ONE_REPOSITORY}")
    if fields.has("sparse"):
        fields.note_mistake("sparse", "is not supported; the whole commit is checked out")
    if not fields.has("repo"):
        fields.note_mistake("repo", "is missing; name a folder, or an address for git")
    commit, base = fields.text("commit", ""), fields.text("base_commit", "")
    if commit and base and commit != base:
        fields.note_mistake("base_commit", f"must be the same as commit, {commit!r}")
    back = fields.integer("ancestor", 0)
    ref = f"{commit or base or 'HEAD'}~{back}" if back else commit or base
    key = "ancestor" if back else "commit" if commit else "base_commit"
    return _checked_repository(fields, ("repo", key), ref, source)


def _checked_repository(
    fields: SettingsFields, keys: tuple[str, str], ref: str, source: FileSource
) -> RepositoryRef:
    """`keys` are the settings of the repository and its commit."""
    mention = fields.mention(keys[0])
    repository = _address(fields, keys[0], mention) if mention else ""
    if ref.startswith("-"):
        fields.note_mistake(keys[1], f"{ref!r} is not the name of a commit")
    elif repository and is_folder(Path(repository)):
        trouble = source.cached(
            ("repository", repository, ref), lambda: _find_mistakes(repository, ref, source.environ)
        )
        for key, words in trouble:
            fields.note_mistake(keys[1] if key == "ref" else keys[0], words)
    return RepositoryRef(repository=repository, ref=ref)


def _address(fields: SettingsFields, key: str, mention: Mention) -> str:
    """A folder relative to the file, or an address for git."""
    path = path_beside(mention.place, mention.name)
    if is_folder(path):
        return str(path.resolve())
    if ":" in mention.name.partition("/")[0] and not mention.name.startswith("-"):
        return mention.name
    fields.note_mistake(
        key, f"{mention.name!r} is not an address, and there is no folder {str(path)!r}"
    )
    return ""


def _find_mistakes(
    repository: str, ref: str, environ: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Mistakes in a local repository: `repository` or `ref`, and why."""
    # Files may be read inside an event loop, where nothing can be awaited.
    with ThreadPoolExecutor(1) as apart:
        return apart.submit(
            anyio.run, _find_mistakes_async, Path(repository), ref, environ
        ).result()


async def _find_mistakes_async(
    folder: Path, ref: str, environ: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    git = Git(folder, environ)
    key = "repository"
    try:
        found = await find_checkout(git)
        if ref:
            key = "ref"
            await find_checkout(git, ref)
        elif not found.commit:
            return (("repository", f"{str(folder)!r} has no commit yet; make a first one"),)
    except NoRepository:
        return (("repository", NO_REPOSITORY.format(folder=str(folder))),)
    except RequestError as error:
        return ((key, str(error)),)
    except EnvironmentTrouble:  # no git, which is not a mistake in the file
        return ()
    return ()


_CONTENT_KEYS: Final = frozenset({"template", "repository", "repos"})
_ALTERNATIVES: Final[Mapping[str, str]] = {
    "path": "use template, which is copied for each attempt",
    "docker": "commands run on this machine",
    "env": "check what has to be there in a before_all hook",
}


def workspace_table(node: Node | None, source: FileSource) -> Table | None:
    """The settings of a workspace, written in place or in a file that is named."""
    if node is None or isinstance(node, Table):
        return node
    if isinstance(node, Items):
        source.problems.note(node.place, f"expected a table or a path, not {describe_node(node)}")
        return None
    return source.table(Path(node.place.file).parent / node.text, node.place)


def read_workspace(
    shared: Table | None, own: Table | None, source: FileSource
) -> WorkspaceSpec | None:
    """The suite's workspace, with a case's own settings. None if nothing is run."""
    if not source.for_run:
        return None
    if shared and own:
        own = merge_tables(
            _without_content(shared) if _CONTENT_KEYS & own.entries.keys() else shared, own
        )
    table = own or shared
    if table is None:
        return None
    return read_table(table, lambda fields: _read_spec(fields, source), source.problems)


def _without_content(shared: Table) -> Table:
    """The shared settings without content: a case with its own content starts from that alone."""
    entries = {
        key: node for key, node in shared.entries.items() if key not in {*_CONTENT_KEYS, "ref"}
    }
    return Table(place=shared.place, entries=entries)


def _read_spec(fields: SettingsFields, source: FileSource) -> WorkspaceSpec:
    fields.text("name", None)
    _check_kind(fields)
    template, origin = _read_template(fields), read_repository(fields, source)
    if fields.has("template") and origin.repository:
        key = "repos" if fields.has("repos") else "repository"
        fields.note_mistake(key, "cannot be used with `template`; keep one of them")
    hooks = fields.section("hooks", lambda inner: read_hooks(inner, template))
    return WorkspaceSpec(template=template, repository=origin.repository, ref=origin.ref, **hooks)


def _check_kind(fields: SettingsFields) -> None:
    """AgentV also has workspaces that are not a new directory for each attempt."""
    isolation = fields.text("isolation", None)
    if isolation not in (None, "per_test"):
        fields.note_mistake(
            "isolation", f"{isolation!r} is not supported; each attempt has its own"
        )
    mode = fields.text("mode", "temp")
    # With a workspace per test, AgentV does not use its pool either.
    if mode != "temp" and (mode, isolation) != ("pooled", "per_test"):
        fields.note_mistake(
            "mode", f"{mode!r} is not supported; a workspace is made for each attempt"
        )
    for key, instead in _ALTERNATIVES.items():
        if fields.has(key):
            fields.note_mistake(key, f"is not supported; {instead}")


def _read_template(fields: SettingsFields) -> Path | None:
    mention = fields.mention("template")
    if mention is None:
        return None
    path = path_beside(mention.place, mention.name)
    if is_folder(path):
        return path.resolve()
    fields.note_mistake("template", f"there is no folder {str(path)!r}")
    return None
