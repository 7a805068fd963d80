"""Reads a project's settings files as trees, layer by layer, and withholds what nobody has approved."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal

from goent.config.file_syntax import parse_jsonc, parse_yaml
from goent.config.settings_tree import Node, Problems, Scalar, SettingPlace, Table, merge_tables
from goent.config.trust_records import read_approvals
from goent.config.trusted_settings import sift_general, sift_providers
from goent.domain.settings import Act
from goent.domain.types import Value
from goent.system.plain_files import NotPlainFile, read_plain_text
from goent.system.project_folders import UnsafeFolder, check_unshared, config_dir, home_dir

MAX_SETTINGS_BYTES: Final = 4_000_000


ENVIRONMENT_SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "GOENT_OPENCODE": ("opencode", "command"),
    "GOENT_PROFILE": ("opencode", "profile"),
    "GOENT_DEFAULT_PROVIDER": ("default_provider",),
}


class SettingsTrees(Value, frozen=True, kw_only=True):
    """The YAML files of all layers. Rules are not merged: the latest file with rules counts.

    `acts` is what the project's files would do. Of those, `withheld` has not been approved, and is
    left out of the tables.
    """

    general: Table
    providers: Table
    routing: tuple[Table, ...]
    acts: tuple[Act, ...] = ()
    withheld: tuple[Act, ...] = ()


class SettingsFiles:
    """Reads the settings files of a project, and records which files it read."""

    def __init__(self, project: Path, environ: Mapping[str, str], problems: Problems) -> None:
        self._project = project
        self._home = home_dir(environ)
        self._environ = environ
        self._problems = problems
        self.read_paths: list[Path] = []

    def read_trees(self) -> SettingsTrees:
        general = Table(place=SettingPlace(file="config.yaml"))
        providers = Table(place=SettingPlace(file="providers.yaml"))
        routing: list[Table] = []
        folders = (config_dir(self._environ), self._project / ".goent")
        acts, withheld = list[Act](), list[Act]()
        for layer, folder in enumerate(folders):
            inside = self._project if layer else None
            if inside and not self._check_own(
                folder, SettingPlace(file=self.display_path(folder), layer=layer)
            ):
                continue
            models = self.parse(folder / "providers.yaml", "yaml", layer, inside=inside)
            own = self.parse(folder / "config.yaml", "yaml", layer, inside=inside)
            rest = merge_tables(_general_part(models), _profile_part(own))
            rest = merge_tables(rest, _without_keys(own, "profile"))
            models = _without_keys(models, "budget", "opencode_config_path")
            if inside:
                approved = read_approvals(inside, self._environ)
                sifted = (
                    sift_providers(models, providers, approved),
                    sift_general(rest, general, inside, approved),
                )
                models, rest = (each.table for each in sifted)
                acts += [act for each in sifted for act in each.acts]
                withheld += [act for each in sifted for act in each.withheld]
            general = merge_tables(general, rest)
            providers = merge_tables(providers, models)
            routing.append(self.parse(folder / "routing.yaml", "yaml", layer, inside=inside))
        general = merge_tables(general, _from_environment(self._environ, len(folders)))
        self.read_paths += [self._project / name for name in _act_files(acts)]
        return SettingsTrees(
            general=general,
            providers=providers,
            routing=tuple(routing),
            acts=tuple(acts),
            withheld=tuple(withheld),
        )

    def parse(
        self,
        path: Path,
        format_: Literal["yaml", "jsonc"],
        layer: int = 0,
        *,
        inside: Path | None = None,
    ) -> Table:
        """The file as a tree; an empty one if it does not exist.

        `inside` is the project that the file belongs to: then it must be the user's own file, and not
        a link that leads out of the project.
        """
        root = SettingPlace(file=self.display_path(path), layer=layer)
        text = self._text(path, root, inside)
        if text is None:
            return Table(place=root)
        self.read_paths.append(path)
        parse = parse_yaml if format_ == "yaml" else parse_jsonc
        return parse(text, root, self._problems)

    def display_path(self, path: Path) -> str:
        """The path as a message names it."""
        if path.is_relative_to(self._project):
            return str(path.relative_to(self._project))
        if path.is_relative_to(self._home):
            return f"~/{path.relative_to(self._home)}"
        return str(path)

    def _check_own(self, path: Path, place: SettingPlace) -> bool:
        try:
            check_unshared(path, self._project)
        except UnsafeFolder as error:
            self._problems.note_unreadable(place, str(error))
            return False
        return True

    def _text(self, path: Path, root: SettingPlace, inside: Path | None) -> str | None:
        try:
            text = read_plain_text(path, MAX_SETTINGS_BYTES, inside=inside)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except NotPlainFile as error:
            self._problems.note_unreadable(root, error.why)
        except OSError as error:
            self._problems.note_unreadable(root, f"cannot be read: {error.strerror}")
        except UnicodeDecodeError as error:
            self._problems.note_unreadable(root, f"is not UTF-8 text (byte {error.start})")
        else:
            return text if inside is None or self._check_own(path, root) else None
        return None


def _act_files(acts: Iterable[Act]) -> Iterable[str]:
    """Files whose content an approval covers: a change of one can end the approval."""
    return (part.name for act in acts for part in act.materials if part.name != act.key)


def _general_part(providers: Table) -> Table:
    """`budget` and `opencode_config_path` of `providers.yaml`, which `config.yaml` has as well."""
    entries: dict[str, Node] = {}
    if "budget" in providers.entries:
        entries["budget"] = providers.entries["budget"]
    if path := providers.entries.get("opencode_config_path"):
        entries["opencode"] = Table(place=path.place, entries={"config_path": path})
    return Table(place=providers.place, entries=entries)


def _profile_part(general: Table) -> Table:
    profile = general.entries.get("profile")
    if profile is None:
        return Table(place=general.place)
    opencode = Table(place=profile.place, entries={"profile": profile})
    return Table(place=general.place, entries={"opencode": opencode})


def _without_keys(table: Table, *keys: str) -> Table:
    kept = {key: node for key, node in table.entries.items() if key not in keys}
    return Table(place=table.place, entries=kept)


def _from_environment(environ: Mapping[str, str], layer: int) -> Table:
    tree = Table(place=SettingPlace(file="environment", layer=layer))
    for variable, path in ENVIRONMENT_SETTINGS.items():
        if value := environ.get(variable):
            place = SettingPlace(file="environment", key=variable, layer=layer)
            node: Node = Scalar(place=place, kind="text", text=value)
            for key in reversed(path):
                node = Table(place=place, entries={key: node})
            assert isinstance(node, Table)
            tree = merge_tables(tree, node)
    return tree
