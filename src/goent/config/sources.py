"""Which files and variables speak, and who has the last word?

Later wins: the user's folder, the project's folder, the environment.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from goent.config.jsonc import parse_jsonc
from goent.config.tree import Node, Place, Problems, Scalar, Table, merge_tables
from goent.config.trust.records import approvals
from goent.config.trust.settings import sift_general, sift_providers
from goent.config.yaml_files import parse_yaml
from goent.domain.trust import Act
from goent.domain.types import Value
from goent.ownership import UnsafeFolder, check_unshared
from goent.plain_files import NotPlain, read_plain_text
from goent.project import config_dir, home_dir

MOST_BYTES: Final = 4_000_000
ENVIRONMENT: Final[Mapping[str, tuple[str, ...]]] = {
    "GOENT_OPENCODE": ("opencode", "command"),
    "GOENT_PROFILE": ("opencode", "profile"),
    "GOENT_DEFAULT_PROVIDER": ("default_provider",),
}


class Trees(Value, frozen=True, kw_only=True):
    """The YAML files of all layers. Rules are not merged: the latest file that has any rules.

    `acts` are what the project's files would do; `withheld`, which of it nobody has allowed: that
    is left out of the tables.
    """

    general: Table
    providers: Table
    routing: tuple[Table, ...]
    acts: tuple[Act, ...] = ()
    withheld: tuple[Act, ...] = ()


class Files:
    """Reads what is there, and remembers what it read."""

    def __init__(self, project: Path, environ: Mapping[str, str], problems: Problems) -> None:
        self._project = project
        self._home = home_dir(environ)
        self._environ = environ
        self._problems = problems
        self.read: list[Path] = []

    def trees(self) -> Trees:
        general = Table(place=Place(file="config.yaml"))
        providers = Table(place=Place(file="providers.yaml"))
        routing: list[Table] = []
        folders = (config_dir(self._environ), self._project / ".goent")
        acts, withheld = list[Act](), list[Act]()
        for layer, folder in enumerate(folders):
            inside = self._project if layer else None
            if inside and not self._is_ours(folder, Place(file=self.shown(folder), layer=layer)):
                continue
            models = self.parsed(folder / "providers.yaml", "yaml", layer, inside=inside)
            own = self.parsed(folder / "config.yaml", "yaml", layer, inside=inside)
            rest = merge_tables(_lifted(models), _profile_moved(own))
            rest = merge_tables(rest, _without(own, "profile"))
            models = _without(models, "budget", "opencode_config_path")
            if inside:
                approved = approvals(inside, self._environ)
                sifted = (
                    sift_providers(models, providers, approved),
                    sift_general(rest, general, inside, approved),
                )
                models, rest = (each.table for each in sifted)
                acts += [act for each in sifted for act in each.acts]
                withheld += [act for each in sifted for act in each.withheld]
            general = merge_tables(general, rest)
            providers = merge_tables(providers, models)
            routing.append(self.parsed(folder / "routing.yaml", "yaml", layer, inside=inside))
        general = merge_tables(general, _from_environment(self._environ, len(folders)))
        self.read += [self._project / name for name in _files_named(acts)]
        return Trees(
            general=general,
            providers=providers,
            routing=tuple(routing),
            acts=tuple(acts),
            withheld=tuple(withheld),
        )

    def parsed(
        self,
        path: Path,
        format_: Literal["yaml", "jsonc"],
        layer: int = 0,
        *,
        inside: Path | None = None,
    ) -> Table:
        """The file as a tree; an empty one where it does not exist.

        `inside` is the project that the file is part of: then it must be the user's own, and no
        link that leads out.
        """
        root = Place(file=self.shown(path), layer=layer)
        text = self._text(path, root, inside)
        if text is None:
            return Table(place=root)
        self.read.append(path)
        parse = parse_yaml if format_ == "yaml" else parse_jsonc
        return parse(text, root, self._problems)

    def shown(self, path: Path) -> str:
        """The path as a message names it."""
        if path.is_relative_to(self._project):
            return str(path.relative_to(self._project))
        if path.is_relative_to(self._home):
            return f"~/{path.relative_to(self._home)}"
        return str(path)

    def _is_ours(self, path: Path, place: Place) -> bool:
        try:
            check_unshared(path, self._project)
        except UnsafeFolder as error:
            self._problems.note_unreadable(place, str(error))
            return False
        return True

    def _text(self, path: Path, root: Place, inside: Path | None) -> str | None:
        try:
            text = read_plain_text(path, MOST_BYTES, inside=inside)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except NotPlain as error:
            self._problems.note_unreadable(root, error.why)
        except OSError as error:
            self._problems.note_unreadable(root, f"cannot be read: {error.strerror}")
        except UnicodeDecodeError as error:
            self._problems.note_unreadable(root, f"is no UTF-8 text (byte {error.start})")
        else:
            return text if inside is None or self._is_ours(path, root) else None
        return None


def _files_named(acts: Iterable[Act]) -> Iterable[str]:
    """Files that acts are made of: when one changes, what was allowed has to be looked at again."""
    return (part.name for act in acts for part in act.materials if part.name != act.key)


def _lifted(providers: Table) -> Table:
    """`budget` and `opencode_config_path` may stand in `providers.yaml`; they mean the same."""
    entries: dict[str, Node] = {}
    if "budget" in providers.entries:
        entries["budget"] = providers.entries["budget"]
    if path := providers.entries.get("opencode_config_path"):
        entries["opencode"] = Table(place=path.place, entries={"config_path": path})
    return Table(place=providers.place, entries=entries)


def _profile_moved(general: Table) -> Table:
    profile = general.entries.get("profile")
    if profile is None:
        return Table(place=general.place)
    opencode = Table(place=profile.place, entries={"profile": profile})
    return Table(place=general.place, entries={"opencode": opencode})


def _without(table: Table, *keys: str) -> Table:
    kept = {key: node for key, node in table.entries.items() if key not in keys}
    return Table(place=table.place, entries=kept)


def _from_environment(environ: Mapping[str, str], layer: int) -> Table:
    tree = Table(place=Place(file="environment", layer=layer))
    for variable, path in ENVIRONMENT.items():
        if value := environ.get(variable):
            place = Place(file="environment", key=variable, layer=layer)
            node: Node = Scalar(place=place, kind="text", text=value)
            for key in reversed(path):
                node = Table(place=place, entries={key: node})
            assert isinstance(node, Table)
            tree = merge_tables(tree, node)
    return tree
