"""Files and environment in, `Settings` out: what holds for this project?"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from goent.config.catalogue import Sources, gather_backends, gather_providers
from goent.config.fields import Mention, read_table
from goent.config.general import GeneralFile, read_general
from goent.config.known import ALL_ROUND, KNOWN, SHORT_NAMES, key_variables, known_backend
from goent.config.opencode import OpenCodeConfig, OpenCodeReader, read_logins
from goent.config.providers import ProvidersFile, read_providers
from goent.config.routing import Rule, never_asked, read_routing
from goent.config.sources import Files
from goent.config.tree import Place, Problems, suggestion
from goent.domain.settings import Backend, OwnAgent, Settings
from goent.domain.trust import Act
from goent.domain.types import Provider, Value
from goent.project import home_dir


class _Read(Value, frozen=True, kw_only=True):
    """All files, each by itself; what they say about one another is not checked yet."""

    general: GeneralFile
    providers: ProvidersFile
    rules: tuple[Rule, ...]
    opencode: OpenCodeConfig
    opencode_path: Path | None
    logins: tuple[str, ...]
    withheld: tuple[Act, ...]

    @property
    def missing(self) -> frozenset[str]:
        """Providers and agents that would exist if the project were trusted."""
        return frozenset(name for act in self.withheld for name in act.names)


def load_settings(project: Path, environ: Mapping[str, str]) -> Settings:
    """The settings of a project, or a `ConfigError` with every mistake on a line of its own."""
    problems = Problems()
    files = Files(project, environ, problems)
    read = _read_all(project, environ, files, problems)
    sources = Sources(
        entries=read.providers.entries,
        opencode=read.opencode,
        logins=read.logins,
        agents=read.general.agents,
        environ=environ,
    )
    backends = gather_backends(sources, problems)
    providers = gather_providers(sources, backends, _wanted(read, backends))
    if not problems.unreadable:
        _check_names(read, backends, providers, problems)
    problems.check()
    return _settings(
        read,
        backends,
        providers,
        tuple(files.read),
        project=project,
        home=home_dir(environ),
    )


def _read_all(project: Path, environ: Mapping[str, str], files: Files, problems: Problems) -> _Read:
    trees = files.trees()
    general = read_table(trees.general, read_general, problems)
    routing = [read_table(tree, read_routing, problems) for tree in trees.routing]
    home = home_dir(environ)
    path = _opencode_path(general.config_path, project, environ, problems)
    opencode = OpenCodeConfig()
    if path:
        reader = OpenCodeReader(path.parent, home, environ)
        opencode = read_table(files.parsed(path, "jsonc"), reader.read, problems, strict=False)
    auth = _xdg(environ, "XDG_DATA_HOME", home / ".local/share") / "opencode/auth.json"
    return _Read(
        general=general,
        providers=read_table(trees.providers, read_providers, problems),
        rules=next((rules for rules in reversed(routing) if rules is not None), ()),
        opencode=opencode,
        opencode_path=path,
        logins=read_table(files.parsed(auth, "jsonc"), read_logins, problems, strict=False),
        withheld=trees.withheld,
    )


def _opencode_path(
    named: Mention | None, project: Path, environ: Mapping[str, str], problems: Problems
) -> Path | None:
    home = home_dir(environ)
    if named is None and environ.get("OPENCODE_CONFIG"):
        place = Place(file="environment", key="OPENCODE_CONFIG")
        named = Mention(name=environ["OPENCODE_CONFIG"], place=place)
    if named is None:
        folder = _xdg(environ, "XDG_CONFIG_HOME", home / ".config") / "opencode"
        usual = (folder / "opencode.json", folder / "opencode.jsonc")
        return next((path for path in usual if _is_file(path)), None)
    path = home / named.name[2:] if named.name.startswith("~/") else project / named.name
    if _is_file(path):
        return path
    # OpenCode would go on without it, and then know none of the models.
    problems.note_unreadable(named.place, f"there is no file {named.name!r}; correct the path")
    return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that is closed to us
        return False


def _wanted(read: _Read, backends: Mapping[str, Backend]) -> Iterator[tuple[str, str]]:
    """Models that nobody lists and somebody names: `backend/model`, or a rule's two fields."""
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


def _provider_mentions(read: _Read) -> Iterator[Mention]:
    for entry in read.providers.entries:
        yield from entry.fallbacks
    yield from read.providers.defaults.values()
    if read.general.default_provider:
        yield read.general.default_provider


def _check_names(
    read: _Read,
    backends: Mapping[str, Backend],
    providers: Iterable[Provider],
    problems: Problems,
) -> None:
    names = (*(provider.name for provider in providers), *read.missing)
    unheld = (mention.name for mention in _unheld(read, providers))
    _note_unknown(_provider_mentions(read), (*names, *unheld), problems)
    for entry in read.providers.entries:
        for mention in entry.fallbacks:
            if mention.name == entry.provider.name:
                problems.note(mention.place, f"{mention.name!r} cannot be its own fallback")
    for agent, place in read.general.agent_places.items():
        if agent in backends:
            message = f"{agent!r} is a backend of models already; give the agent another name"
            problems.note(place, message)
    # A team's rules may name a well-known provider that this user holds no key for.
    routable = (*names, *backends, *read.general.agents, *KNOWN, *SHORT_NAMES)
    _note_unknown((rule.provider for rule in read.rules if rule.provider), routable, problems)


def _unheld(read: _Read, providers: Iterable[Provider]) -> Iterator[Mention]:
    """Providers that others have and this user has not: a team's files name them all the same."""
    names = {*(provider.name for provider in providers), *read.missing}
    for mention in _provider_mentions(read):
        if mention.name not in names and ("/" in mention.name or key_variables(mention.name)):
            yield mention


def _left_out(read: _Read, providers: Iterable[Provider]) -> Iterator[str]:
    for mention in _unheld(read, providers):
        variables = " or ".join(key_variables(mention.name))
        remedy = f"set {variables}" if variables else "add its provider to your opencode.json"
        yield f"{mention.place}: {mention.name!r} is left out, because nothing here provides it: {remedy}"


def _note_unknown(mentions: Iterable[Mention], names: tuple[str, ...], problems: Problems) -> None:
    known = dict.fromkeys(names)
    for mention in mentions:
        if mention.name not in known:
            remedy = suggestion(mention.name, known)
            problems.note(mention.place, f"unknown provider {mention.name!r}; {remedy}")


def _settings(
    read: _Read,
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
        usual_keys=_usual_keys(backends),
        defaults={
            role: mention.name
            for role, mention in read.providers.defaults.items()
            if mention.name in names
        },
        rules=tuple(
            rule.rule
            for rule in read.rules
            if rule.rule.provider in known or rule.rule.provider not in read.missing
        ),
        agents=general.agents,
        agent=OwnAgent(writable=tuple(home / _below_home(path) for path in general.writable)),
        health=read.providers.health,
        budget=general.budget,
        failover_pinned=general.failover_pinned,
        isolation=general.isolation,
        permissions=general.permissions,
        opencode=replace(general.opencode, config_path=read.opencode_path),
        sandbox=replace(
            general.sandbox,
            writable=tuple(home / _below_home(str(path)) for path in general.sandbox.writable),
            readable=tuple(home / _below_home(str(path)) for path in general.sandbox.readable),
        ),
        limits=general.limits,
        daemon=general.daemon,
        files=files,
        warnings=(*_left_out(read, providers), *never_asked(read.rules)),
        withheld=read.withheld,
        written=tuple(entry.provider.name for entry in read.providers.entries),
        learning=general.learning,
    )


def _below_home(path: str) -> str:
    """A path as written: `~/x` and `x` are in the user's home."""
    return path.removeprefix("~/").removeprefix("~") if path.startswith("~") else path


def _usual_keys(backends: Mapping[str, Backend]) -> tuple[str, ...]:
    """Variables that hold keys by convention, except where OpenCode itself has to find them."""
    direct = {
        known for name, b in backends.items() if not b.base_url and (known := known_backend(name))
    }
    return tuple(v for known in KNOWN.values() if known not in direct for v in known.variables)


def _default_provider(read: _Read, providers: tuple[Provider, ...]) -> str | None:
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
    return next((name for name in ALL_ROUND if name in names), None)


def _xdg(environ: Mapping[str, str], name: str, default: Path) -> Path:
    given = Path(environ.get(name) or ".")
    return given if given.is_absolute() else default
