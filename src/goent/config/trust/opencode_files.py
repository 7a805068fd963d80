"""What OpenCode would run or follow of a project's own files.

OpenCode walks from a worker's directory up. A part of it heeds no switch: whatever lies in
`.opencode/plugin` and `.opencode/plugins`, and what an `opencode.json` names as a plugin, is imported
and run wherever OpenCode starts. The rest (agents, commands, tools, MCP servers) is followed only
with `opencode.project_config`. Where OpenCode stops going up, a repository can bend, so we look up to
the root; the user's own home and OpenCode's own configuration are theirs.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from goent.config.jsonc import parse_jsonc
from goent.config.tree import Items, Node, Place, Problems, Scalar, Table
from goent.config.trust.materials import (
    MOST_BYTES,
    Unlooked,
    file_material,
    files_below,
    module_files,
    setting,
    with_imports,
)
from goent.domain.trust import Act, act
from goent.ownership import check_unshared
from goent.plain_files import NotPlain, read_plain_text
from goent.project import home_dir

FOLDER: Final = ".opencode"
CONFIGS: Final = ("opencode.json", "opencode.jsonc")
PLUGINS: Final = ("plugin", "plugins")
# Settings that start nothing and fetch nothing. Anything else may, now or in a later OpenCode.
HARMLESS: Final = frozenset(
    {
        *("$schema", "agent", "agents", "attachments", "autoupdate", "command", "commands"),
        *("compaction", "default_agent", "disabled_providers", "enabled_providers", "keybinds"),
        *("layout", "logLevel", "mode", "model", "permission", "permissions", "share"),
        *("small_model", "snapshot", "snapshots", "theme", "tool_output", "tools", "tui"),
        *("username", "watcher"),
    }
)
LISTED: Final = 5  # files that are named one by one
INSTALLED: Final = frozenset({"node_modules", ".git"})


def opencode_acts(folder: Path, environ: Mapping[str, str], *, whole: bool) -> tuple[Act, ...]:
    """Of the folder and those above it; `whole`: also what a switch turns off.

    Raises `UnsafeFolder` for files that somebody else could have put there.
    """
    return tuple(
        found
        for each in _searched(folder, environ)
        for found in (*_of_configs(each, whole=whole), *_of_folder(each / FOLDER, whole=whole))
    )


def _searched(folder: Path, environ: Mapping[str, str]) -> Iterator[Path]:
    home = Path(os.path.realpath(home_dir(environ)))
    given = environ.get("XDG_CONFIG_HOME", "")
    config = Path(given) if Path(given).is_absolute() else home / ".config"
    own = (home, Path(os.path.realpath(config / "opencode")))
    here = Path(os.path.realpath(folder))
    for each in dict.fromkeys((Path(os.path.abspath(folder)), here)):  # noqa: PTH100 (links stay)
        yield from (above for above in (each, *each.parents) if above not in own)


def _of_configs(folder: Path, *, whole: bool) -> Iterator[Act]:
    for path in (folder / name for name in CONFIGS):
        if not os.path.lexists(path):
            continue
        check_unshared(path, folder)
        try:
            yield from _of_config(path, whole=whole)
        except Unlooked as error:
            yield _unlooked(path, str(error))


def _of_config(path: Path, *, whole: bool) -> Iterator[Act]:
    tree = _parsed(path)
    if tree is None:
        yield act(
            file=str(path),
            kind="opencode",
            says="OpenCode may read plugins in it, though go-ent cannot read it as JSON",
            materials=(file_material(path, path.parent),),
        )
        return
    acting = {
        key: node
        for key, node in tree.entries.items()
        if (whole and key != "$schema") or (key not in HARMLESS and not _is_empty(node))
    }
    if not acting:
        return
    plugins = [text for key in PLUGINS for text in _plugin_names(acting.get(key))]
    files = [each for name in plugins for each in _local(name, path.parent)]
    yield act(
        file=str(path),
        key=", ".join(acting),
        kind="plugin" if plugins else "opencode",
        says=_in_words(acting, plugins),
        materials=(
            *(setting(key, node) for key, node in acting.items()),
            *with_imports(files, path.parent),
        ),
    )


def _of_folder(folder: Path, *, whole: bool) -> Iterator[Act]:
    if not os.path.isdir(folder):  # noqa: PTH112 (a Path raises for what is too long)
        return
    check_unshared(folder, folder.parent)
    yield from _of_configs(folder, whole=whole)
    below = sorted(each.name for each in folder.iterdir() if each.name not in INSTALLED)
    for name in below:
        path = folder / name
        if name in CONFIGS or not (whole or name in PLUGINS):
            continue
        try:
            yield from _of_part(path, folder.parent)
        except Unlooked as error:
            yield _unlooked(path, str(error))


def _of_part(path: Path, top: Path) -> Iterator[Act]:
    check_unshared(path, top)
    if path.is_dir():
        found = files_below(path, top)
        if path.name in PLUGINS:
            known = {each.name for each in found}
            imported = with_imports((top / each.name for each in found), top)
            found += [each for each in imported if each.name not in known]
    else:
        found = [file_material(path, top)]
    if not found:
        return
    names = ", ".join(each.name for each in found[:LISTED])
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    is_plugin = path.name in PLUGINS
    yield act(
        file=str(path),
        kind="plugin" if is_plugin else "opencode",
        says=f"OpenCode {'runs' if is_plugin else 'follows'} {names}{more}",
        materials=found,
    )


def _parsed(path: Path) -> Table | None:
    problems = Problems()
    try:
        text = read_plain_text(path, MOST_BYTES)
    except (NotPlain, OSError) as error:
        raise Unlooked(str(error)) from None
    except UnicodeDecodeError:
        return None
    tree = parse_jsonc(text, Place(file=str(path)), problems)
    return None if problems.count else tree


def _in_words(acting: Mapping[str, Node], plugins: list[str]) -> str:
    told = [f"OpenCode runs the plugin {name!r}" for name in plugins]
    if rest := [key for key in acting if key not in PLUGINS]:
        told.append(f"OpenCode reads {', '.join(rest)}")
    return "; ".join(told)


def _plugin_names(node: Node | None) -> Iterator[str]:
    """Every text in the entry: a plugin may be named alone, or with its options."""
    if isinstance(node, Scalar):
        yield node.text
    elif isinstance(node, Items):
        for item in node.items:
            yield from _plugin_names(item)
    elif isinstance(node, Table):
        for entry in node.entries.values():
            yield from _plugin_names(entry)


def _local(name: str, folder: Path) -> Iterator[Path]:
    """The files that are imported for a plugin of that name, if it is no package of a registry."""
    _, is_file, after = name.partition("file:")
    path = unquote(after.removeprefix("//")) if is_file else name
    return module_files(str(folder / path))


def _is_empty(node: Node) -> bool:
    if isinstance(node, Scalar):
        return node.kind == "null"
    return not (node.items if isinstance(node, Items) else node.entries)


def _unlooked(path: Path, why: str) -> Act:
    return Act(file=str(path), key="", kind="opencode", says=why, digest="")
