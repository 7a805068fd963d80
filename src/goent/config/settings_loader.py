"""Loads the settings of a project from files and environment, and reloads them on change.

Later wins: the user's folder, the project's folder, the environment.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from goent.config.general_settings import GeneralFile, read_general
from goent.config.opencode_config import OpenCodeConfig, OpenCodeReader, read_logins
from goent.config.provider_catalogue import ProviderSources, gather_backends, gather_providers
from goent.config.provider_settings import (
    DEFAULT_SHORT_NAMES,
    KNOWN_BACKENDS,
    SHORT_NAMES,
    ProvidersFile,
    key_variables,
    known_backend,
    read_providers,
)
from goent.config.routing_file import RuleEntry, read_routing, unreachable_rules
from goent.config.settings_files import SettingsFiles
from goent.config.settings_tree import Mention, Problems, SettingPlace, read_table
from goent.config.trust_records import record_path
from goent.domain.errors import ConfigError, RulesMistaken
from goent.domain.input_mistakes import suggestion
from goent.domain.settings import Act, Backend, OwnAgentSettings, Settings
from goent.domain.types import Provider, Value
from goent.system.project_folders import config_dir, home_dir, ownership_stamp


class _RawSettings(Value, frozen=True, kw_only=True):
    """All files, each read by itself; references between them are not checked yet."""

    general: GeneralFile
    providers: ProvidersFile
    rules: tuple[RuleEntry, ...]
    opencode: OpenCodeConfig
    opencode_path: Path | None
    logins: tuple[str, ...]
    withheld: tuple[Act, ...]

    @property
    def withheld_names(self) -> frozenset[str]:
        """Providers and agents that would exist if the project were trusted."""
        return frozenset(name for act in self.withheld for name in act.names)


def load_settings(project: Path, environ: Mapping[str, str]) -> Settings:
    """The settings of a project, or a `ConfigError` with every mistake on a line of its own."""
    problems = Problems()
    files = SettingsFiles(project, environ, problems)
    read = _read_all(project, environ, files, problems)
    sources = ProviderSources(
        entries=read.providers.entries,
        opencode=read.opencode,
        logins=read.logins,
        agents=read.general.agents,
        environ=environ,
    )
    backends = gather_backends(sources, problems)
    providers = gather_providers(sources, backends, _wanted_models(read, backends))
    if not problems.unreadable:
        _check_names(read, backends, providers, problems)
    problems.raise_all()
    return _build_settings(
        read,
        backends,
        providers,
        tuple(files.read_paths),
        project=project,
        home=home_dir(environ),
    )


def _read_all(
    project: Path, environ: Mapping[str, str], files: SettingsFiles, problems: Problems
) -> _RawSettings:
    trees = files.read_trees()
    general = read_table(trees.general, read_general, problems)
    routing = [read_table(tree, read_routing, problems) for tree in trees.routing]
    home = home_dir(environ)
    path = _opencode_path(general.config_path, project, environ, problems)
    opencode = OpenCodeConfig()
    if path:
        reader = OpenCodeReader(path.parent, home, environ)
        opencode = read_table(files.parse(path, "jsonc"), reader.read, problems, strict=False)
    auth = _xdg_dir(environ, "XDG_DATA_HOME", home / ".local/share") / "opencode/auth.json"
    return _RawSettings(
        general=general,
        providers=read_table(trees.providers, read_providers, problems),
        rules=next((rules for rules in reversed(routing) if rules is not None), ()),
        opencode=opencode,
        opencode_path=path,
        logins=read_table(files.parse(auth, "jsonc"), read_logins, problems, strict=False),
        withheld=trees.withheld,
    )


def _opencode_path(
    named: Mention | None, project: Path, environ: Mapping[str, str], problems: Problems
) -> Path | None:
    home = home_dir(environ)
    if named is None and environ.get("OPENCODE_CONFIG"):
        place = SettingPlace(file="environment", key="OPENCODE_CONFIG")
        named = Mention(name=environ["OPENCODE_CONFIG"], place=place)
    if named is None:
        folder = _xdg_dir(environ, "XDG_CONFIG_HOME", home / ".config") / "opencode"
        usual = (folder / "opencode.json", folder / "opencode.jsonc")
        return next((path for path in usual if _is_file(path)), None)
    path = home / named.name[2:] if named.name.startswith("~/") else project / named.name
    if _is_file(path):
        return path
    # OpenCode would continue without it, knowing none of the models.
    problems.note_unreadable(named.place, f"there is no file {named.name!r}; correct the path")
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, an unreadable folder
        return False


def _wanted_models(
    read: _RawSettings, backends: Mapping[str, Backend]
) -> Iterator[tuple[str, str]]:
    """Models that no source lists but settings name: as `backend/model`, or in a rule's two fields."""
    names = [mention.name for mention in _provider_mentions(read)]
    for name in (*names, read.opencode.model or ""):
        backend, slash, model = name.partition("/")
        if slash and model and backend in backends:
            yield backend, model
    short = {entry.provider.name: entry.provider.backend for entry in read.providers.entries}
    for rule in read.rules:
        provider, model = rule.rule.provider, rule.rule.model
        if provider and model and (backend := short.get(provider, provider)) in backends:
            yield backend, model


def _provider_mentions(read: _RawSettings) -> Iterator[Mention]:
    for entry in read.providers.entries:
        yield from entry.fallbacks
    yield from read.providers.defaults.values()
    if read.general.default_provider:
        yield read.general.default_provider


def _check_names(
    read: _RawSettings,
    backends: Mapping[str, Backend],
    providers: Iterable[Provider],
    problems: Problems,
) -> None:
    names = (*(provider.name for provider in providers), *read.withheld_names)
    unheld = (mention.name for mention in _unavailable_mentions(read, providers))
    _note_unknown(_provider_mentions(read), (*names, *unheld), problems)
    for entry in read.providers.entries:
        for mention in entry.fallbacks:
            if mention.name == entry.provider.name:
                problems.note(mention.place, f"{mention.name!r} cannot be its own fallback")
    for agent, place in read.general.agent_places.items():
        if agent in backends:
            message = f"{agent!r} is a backend of models already; give the agent another name"
            problems.note(place, message)
    # A team's rules may name a well-known provider for which this user has no key.
    routable = (*names, *backends, *read.general.agents, *KNOWN_BACKENDS, *SHORT_NAMES)
    _note_unknown((rule.provider for rule in read.rules if rule.provider), routable, problems)


def _unavailable_mentions(read: _RawSettings, providers: Iterable[Provider]) -> Iterator[Mention]:
    """Mentions of providers that this user lacks: a team's files name them for those who have them."""
    names = {*(provider.name for provider in providers), *read.withheld_names}
    for mention in _provider_mentions(read):
        if mention.name not in names and ("/" in mention.name or key_variables(mention.name)):
            yield mention


def _left_out_warnings(read: _RawSettings, providers: Iterable[Provider]) -> Iterator[str]:
    for mention in _unavailable_mentions(read, providers):
        variables = " or ".join(key_variables(mention.name))
        remedy = f"set {variables}" if variables else "add its provider to your opencode.json"
        yield f"{mention.place}: {mention.name!r} is left out, because nothing here provides it: {remedy}"


def _note_unknown(mentions: Iterable[Mention], names: tuple[str, ...], problems: Problems) -> None:
    known = dict.fromkeys(names)
    for mention in mentions:
        if mention.name not in known:
            remedy = suggestion(mention.name, known)
            problems.note(mention.place, f"unknown provider {mention.name!r}; {remedy}")


def _build_settings(
    read: _RawSettings,
    backends: Mapping[str, Backend],
    providers: tuple[Provider, ...],
    files: tuple[Path, ...],
    *,
    project: Path,
    home: Path,
) -> Settings:
    general = read.general
    names = frozenset(provider.name for provider in providers)
    known = names | backends.keys()
    default = general.default_provider
    return Settings(
        project=project,
        providers=providers,
        backends=backends,
        default_provider=_default_provider(read, providers),
        default_chosen=default is not None and default.name in names,
        usual_keys=_usual_key_variables(backends),
        defaults={
            role: mention.name
            for role, mention in read.providers.defaults.items()
            if mention.name in names
        },
        rules=tuple(
            rule.rule
            for rule in read.rules
            if rule.rule.provider in known or rule.rule.provider not in read.withheld_names
        ),
        agents=general.agents,
        agent=OwnAgentSettings(
            writable=tuple(home / _relative_to_home(path) for path in general.writable)
        ),
        health=read.providers.health,
        budget=general.budget,
        failover_pinned=general.failover_pinned,
        isolation=general.isolation,
        permissions=general.permissions,
        opencode=replace(general.opencode, config_path=read.opencode_path),
        sandbox=replace(
            general.sandbox,
            writable=tuple(
                home / _relative_to_home(str(path)) for path in general.sandbox.writable
            ),
            readable=tuple(
                home / _relative_to_home(str(path)) for path in general.sandbox.readable
            ),
        ),
        limits=general.limits,
        daemon=general.daemon,
        files=files,
        warnings=(*_left_out_warnings(read, providers), *unreachable_rules(read.rules)),
        withheld=read.withheld,
        written=tuple(entry.provider.name for entry in read.providers.entries),
        learning=general.learning,
    )


def _relative_to_home(path: str) -> str:
    """A path without `~/`: relative paths are relative to the user's home."""
    return path.removeprefix("~/").removeprefix("~") if path.startswith("~") else path


def _usual_key_variables(backends: Mapping[str, Backend]) -> tuple[str, ...]:
    """Variables that hold keys by convention, except where OpenCode itself has to find them."""
    direct = {
        known.id
        for name, b in backends.items()
        if not b.base_url and (known := known_backend(name))
    }
    return tuple(
        v for name, known in KNOWN_BACKENDS.items() if name not in direct for v in known.variables
    )


def _default_provider(read: _RawSettings, providers: tuple[Provider, ...]) -> str | None:
    asked = read.general.default_provider or read.providers.defaults.get("implementation")
    there = {provider.name for provider in providers}
    if asked and asked.name in there:
        return asked.name
    names = [p.name for p in providers if p.backend not in read.general.agents]
    if read.opencode.model in names:
        return read.opencode.model
    own = [entry.provider.name for entry in read.providers.entries]
    if own:
        return own[0] if len(own) == 1 else None
    listed = [name for name in names if name not in SHORT_NAMES]
    if len(listed) == 1:
        return listed[0]
    return next((name for name in DEFAULT_SHORT_NAMES if name in names), None)


def _xdg_dir(environ: Mapping[str, str], name: str, default: Path) -> Path:
    given = Path(environ.get(name) or ".")
    return given if given.is_absolute() else default


SETTINGS_FILES = ("config.yaml", "providers.yaml", "routing.yaml")

SettingsStamp = tuple[int, tuple[tuple[int, int, int] | None, ...], tuple[tuple[object, ...], ...]]

log = logging.getLogger(__name__)


class LiveSettings:
    """One project's settings, reloaded when a file changes."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._stamp: SettingsStamp | None = None
        self._last_good: Settings | None = None
        self.error: ConfigError | None = None

    def current(self, environ: Mapping[str, str]) -> Settings:
        """The settings; while a file has a mistake, the last valid ones, if there are any."""
        if self._current_stamp(environ) != self._stamp:
            self._load(environ)
            self._stamp = self._current_stamp(environ)  # of the files that are now read
        if self._last_good is None:
            assert self.error, "loading either succeeds or sets the error"
            raise self.error
        return self._last_good

    def check(self, environ: Mapping[str, str]) -> None:
        """Raise the mistake that a file has now, even if older settings are still in force.

        A mistake in the routing rules alone is not raised: the last valid rules are used.
        """
        self.current(environ)
        if self.error and not isinstance(self.error, RulesMistaken):
            raise self.error

    def _load(self, environ: Mapping[str, str]) -> None:
        try:
            self._last_good, self.error = load_settings(self._project, environ), None
        except ConfigError as error:
            self.error = error
            log.warning("the configuration has a mistake: %s", error)

    def _current_stamp(self, environ: Mapping[str, str]) -> SettingsStamp:
        paths = [*self._watched_paths(environ), *(self._last_good.files if self._last_good else ())]
        own = self._project / ".goent"
        whose = tuple(map(ownership_stamp, (own, *(own / name for name in SETTINGS_FILES))))
        return hash(frozenset(environ.items())), tuple(map(_file_state, paths)), whose

    def _watched_paths(self, environ: Mapping[str, str]) -> Iterable[Path]:
        """Files that exist, and files that may be created."""
        own = config_dir(environ)
        for folder in (own, self._project / ".goent"):
            yield from (folder / name for name in SETTINGS_FILES)
        for name in ("opencode.json", "opencode.jsonc"):
            yield own.parent / "opencode" / name
        yield record_path(self._project, environ)


def _file_state(path: Path) -> tuple[int, int, int] | None:
    """Changes with the file, even if its modification time is set back."""
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_ctime_ns, info.st_mtime_ns, info.st_size
