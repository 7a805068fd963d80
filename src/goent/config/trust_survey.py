"""Lists everything in a project's settings and OpenCode files that needs the user's approval.

OpenCode searches from a worker's directory upwards. No switch turns off plugins: whatever lies in
`.opencode/plugin` and `.opencode/plugins`, or is named as a plugin in an `opencode.json`, is imported
and run wherever OpenCode starts. The rest (agents, commands, tools, MCP servers) is followed only with
`opencode.project_config`. A repository can influence where OpenCode stops searching, so go-ent looks up
to the root, leaving out the user's own home and OpenCode's own configuration.
"""

import os
import shlex
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from goent.config.file_syntax import parse_jsonc
from goent.config.settings_files import SettingsFiles
from goent.config.settings_loader import load_settings
from goent.config.settings_tree import Items, Node, Problems, Scalar, SettingPlace, Table
from goent.config.trust_materials import (
    MAX_FILE_BYTES,
    UnreadableMaterial,
    file_material,
    folder_materials,
    import_materials,
    module_files,
    setting_material,
)
from goent.config.trust_records import grant, read_approvals, read_record
from goent.domain.errors import ConfigError, NotTrusted
from goent.domain.settings import Act, list_places, make_act
from goent.system.plain_files import NotPlainFile, read_plain_text
from goent.system.project_folders import UnsafeFolder, check_unshared, find_project, home_dir

OPENCODE_FOLDER: Final = ".opencode"
OPENCODE_CONFIG_FILES: Final = ("opencode.json", "opencode.jsonc")
PLUGIN_KEYS: Final = ("plugin", "plugins")
# Settings that start and fetch nothing. Any other setting may, now or in a later OpenCode.
HARMLESS_KEYS: Final = frozenset(
    {
        *("$schema", "agent", "agents", "attachments", "autoupdate", "command", "commands"),
        *("compaction", "default_agent", "disabled_providers", "enabled_providers", "keybinds"),
        *("layout", "logLevel", "mode", "model", "permission", "permissions", "share"),
        *("small_model", "snapshot", "snapshots", "theme", "tool_output", "tools", "tui"),
        *("username", "watcher"),
    }
)
MAX_LISTED_FILES: Final = 5  # files that are named one by one
INSTALLED_FOLDERS: Final = frozenset({"node_modules", ".git"})


def opencode_acts(folder: Path, environ: Mapping[str, str], *, whole: bool) -> tuple[Act, ...]:
    """What OpenCode would do in the folder; `whole` includes what `project_config` turns on.

    Raises `UnsafeFolder` for files that another user could have put there.
    """
    return tuple(
        found
        for each in _searched_folders(folder, environ)
        for found in (
            *_acts_of_configs(each, whole=whole),
            *_acts_of_folder(each / OPENCODE_FOLDER, whole=whole),
        )
    )


def _searched_folders(folder: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    home = Path(os.path.realpath(home_dir(environ)))
    given = environ.get("XDG_CONFIG_HOME", "")
    config = Path(given) if Path(given).is_absolute() else home / ".config"
    own = (home, Path(os.path.realpath(config / "opencode")))
    here = Path(os.path.realpath(folder))
    for each in dict.fromkeys((Path(os.path.abspath(folder)), here)):  # noqa: PTH100 (links stay)
        yield from (above for above in (each, *each.parents) if above not in own)


def _acts_of_configs(folder: Path, *, whole: bool) -> Iterator[Act]:
    for path in (folder / name for name in OPENCODE_CONFIG_FILES):
        if not os.path.lexists(path):
            continue
        check_unshared(path, folder)
        try:
            yield from _acts_of_config(path, whole=whole)
        except UnreadableMaterial as error:
            yield _unreadable_act(path, str(error))


def _acts_of_config(path: Path, *, whole: bool) -> Iterator[Act]:
    tree = _parse_config(path)
    if tree is None:
        yield make_act(
            file=str(path),
            kind="opencode",
            says="OpenCode may read plugins in it, though go-ent cannot read it as JSON",
            materials=(file_material(path, path.parent),),
        )
        return
    acting = {
        key: node
        for key, node in tree.entries.items()
        if (whole and key != "$schema") or (key not in HARMLESS_KEYS and not _is_empty(node))
    }
    if not acting:
        return
    plugins = [text for key in PLUGIN_KEYS for text in _plugin_names(acting.get(key))]
    files = [each for name in plugins for each in _local_plugin_files(name, path.parent)]
    yield make_act(
        file=str(path),
        key=", ".join(acting),
        kind="plugin" if plugins else "opencode",
        says=_acts_text(acting, plugins),
        materials=(
            *(setting_material(key, node) for key, node in acting.items()),
            *import_materials(files, path.parent),
        ),
    )


def _acts_of_folder(folder: Path, *, whole: bool) -> Iterator[Act]:
    if not os.path.isdir(folder):  # noqa: PTH112 (a Path raises for what is too long)
        return
    check_unshared(folder, folder.parent)
    yield from _acts_of_configs(folder, whole=whole)
    below = sorted(each.name for each in folder.iterdir() if each.name not in INSTALLED_FOLDERS)
    for name in below:
        path = folder / name
        if name in OPENCODE_CONFIG_FILES or not (whole or name in PLUGIN_KEYS):
            continue
        try:
            yield from _acts_of_entry(path, folder.parent)
        except UnreadableMaterial as error:
            yield _unreadable_act(path, str(error))


def _acts_of_entry(path: Path, top: Path) -> Iterator[Act]:
    check_unshared(path, top)
    if path.is_dir():
        found = folder_materials(path, top)
        if path.name in PLUGIN_KEYS:
            known = {each.name for each in found}
            imported = import_materials((top / each.name for each in found), top)
            found += [each for each in imported if each.name not in known]
    else:
        found = [file_material(path, top)]
    if not found:
        return
    names = ", ".join(each.name for each in found[:MAX_LISTED_FILES])
    more = f" and {len(found) - MAX_LISTED_FILES} more" if len(found) > MAX_LISTED_FILES else ""
    is_plugin = path.name in PLUGIN_KEYS
    yield make_act(
        file=str(path),
        kind="plugin" if is_plugin else "opencode",
        says=f"OpenCode {'runs' if is_plugin else 'follows'} {names}{more}",
        materials=found,
    )


def _parse_config(path: Path) -> Table | None:
    problems = Problems()
    try:
        text = read_plain_text(path, MAX_FILE_BYTES)
    except (NotPlainFile, OSError) as error:
        raise UnreadableMaterial(str(error)) from None
    except UnicodeDecodeError:
        return None
    tree = parse_jsonc(text, SettingPlace(file=str(path)), problems)
    return None if problems.mistake_count else tree


def _acts_text(acting: Mapping[str, Node], plugins: list[str]) -> str:
    told = [f"OpenCode runs the plugin {name!r}" for name in plugins]
    if rest := [key for key in acting if key not in PLUGIN_KEYS]:
        told.append(f"OpenCode reads {', '.join(rest)}")
    return "; ".join(told)


def _plugin_names(node: Node | None) -> Iterator[str]:
    """Every text in the entry: a plugin may have options beside its name."""
    if isinstance(node, Scalar):
        yield node.text
    elif isinstance(node, Items):
        for item in node.items:
            yield from _plugin_names(item)
    elif isinstance(node, Table):
        for entry in node.entries.values():
            yield from _plugin_names(entry)


def _local_plugin_files(name: str, folder: Path) -> Iterator[Path]:
    """The files that are imported for a plugin of that name, unless it is a package of a registry."""
    _, is_file, after = name.partition("file:")
    path = unquote(after.removeprefix("//")) if is_file else name
    return module_files(str(folder / path))


def _is_empty(node: Node) -> bool:
    if isinstance(node, Scalar):
        return node.kind == "null"
    return not (node.items if isinstance(node, Items) else node.entries)


def _unreadable_act(path: Path, why: str) -> Act:
    return Act(file=str(path), key="", kind="opencode", says=why, digest="")


PROJECT_CONFIG = "opencode.project_config"


def find_acts(project: Path, environ: Mapping[str, str], *below: Path) -> tuple[Act, ...]:
    """What the project's settings and OpenCode files would do, also if a file has mistakes.

    `below` are further folders that OpenCode is to work in. Raises `UnsafeFolder`.
    """
    settings = SettingsFiles(project, environ, Problems()).read_trees().acts
    whole = any(act.key == PROJECT_CONFIG for act in settings) or _uses_project_config(
        project, environ
    )
    found = [
        act
        for folder in dict.fromkeys((project, *below))
        for act in opencode_acts(folder, environ, whole=whole)
    ]
    return tuple({(act.file, act.digest): act for act in (*settings, *found)}.values())


def trust_everything(project: Path, environ: Mapping[str, str]) -> None:
    """Approve everything: for files that go-ent itself, or the caller, has just written."""
    grant(project, environ, find_acts(project, environ))


def trust_starter(project: Path, environ: Mapping[str, str], written: Collection[Path]) -> None:
    """Approve the files that `go-ent init` has written, and nothing that was there before."""
    names = {str(path.relative_to(project)) for path in written}
    record = read_record(project, environ)
    new = [act for act in find_acts(project, environ) if act.file in names]
    grant(project, environ, (*(record.acts if record else ()), *new))


def check_opencode_trust(
    folder: Path,
    project: Path,
    environ: Mapping[str, str],
    *,
    whole: bool,
    more: tuple[Act, ...] = (),
) -> None:
    """Raise `NotTrusted` if OpenCode would run something in the folder that is not approved.

    `more` is what else would run there. The folder may be a project of its own inside the other: an
    approval for either is enough.
    """
    try:
        acts = (*opencode_acts(folder, environ, whole=whole), *more)
        missing = read_approvals(project, environ).missing(acts)
        missing = missing and read_approvals(find_project(folder), environ).missing(missing)
    except UnsafeFolder as error:
        raise NotTrusted(f"OpenCode was not started in {str(folder)!r}: {error}") from None
    if not missing:
        return
    command = "go-ent trust" if folder == project else f"go-ent trust {shlex.quote(str(folder))}"
    what = "; ".join(dict.fromkeys(act.says for act in missing[:3]))
    raise NotTrusted(
        f"OpenCode was not started in {str(folder)!r}: {list_places(missing)} is not trusted "
        f"({what}). Review and allow it with `{command}`, remove it, or use the method agent or api, "
        "which do not load it"
    )


def _uses_project_config(project: Path, environ: Mapping[str, str]) -> bool:
    try:
        return load_settings(project, environ).opencode.project_config
    except ConfigError:
        return False
