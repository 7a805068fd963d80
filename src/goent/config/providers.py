"""What does `providers.yaml` say? Short names for models, and what they are good for."""

from collections.abc import Mapping
from typing import Final, get_args

from goent.config.fields import Fields, Mention, read_url, read_variable
from goent.config.known import SHORT_NAMES, known_backend
from goent.config.prices import read_price
from goent.config.types import TYPES
from goent.domain.local_servers import local_server
from goent.domain.settings import Health
from goent.domain.types import Method, Provider, RateLimits, Value

METHODS: Final[tuple[Method, ...]] = get_args(Method)
ROLES: Final = ("implementation", "large_context", "simple_tasks")  # besides types of tasks


class Entry(Value, frozen=True, kw_only=True):
    """One provider of the file, with what it says about its backend."""

    provider: Provider
    base_url: Mention | None = None
    api_key_env: Mention | None = None
    local: bool | None = None
    fallbacks: tuple[Mention, ...] = ()


class ProvidersFile(Value, frozen=True, kw_only=True):
    """Entries with mistakes are among them: their names are taken."""

    entries: tuple[Entry, ...] = ()
    defaults: Mapping[str, Mention] = {}
    health: Health = Health()


def read_providers(fields: Fields) -> ProvidersFile:
    return ProvidersFile(
        entries=tuple(fields.tables("providers", _entry).values()),
        defaults=fields.section("defaults", _defaults),
        health=fields.section("health", _health),
    )


def _entry(fields: Fields) -> Entry:
    fallbacks = fields.mentions("fallbacks")
    backend = fields.needed("provider", "name the backend, as in opencode.json")
    return Entry(
        provider=Provider(
            name=fields.name,
            backend=backend,
            model=_model(fields, backend),
            method=fields.choice("method", METHODS, "acp"),
            context_limit=fields.integer("context_limit", None, least=1),
            best_for=fields.texts("best_for"),
            price=read_price(fields),
            fallbacks=tuple(mention.name for mention in fallbacks),
            limits=fields.section("limits", _limits),
        ),
        base_url=read_url(fields, "base_url"),
        api_key_env=read_variable(fields, "api_key_env"),
        local=_local(fields, backend),
        fallbacks=fallbacks,
    )


def _local(fields: Fields, backend: str) -> bool | None:
    """None: its address decides."""
    if not fields.has("local"):
        return None
    local = fields.flag("local", default=False)
    if local and not fields.has("base_url") and local_server(backend) is None:
        fields.mistake("local", "needs a base_url: say where the server answers")
    return local


def _model(fields: Fields, backend: str) -> str:
    """A short name stands for its model, where a well-known backend answers at its own address."""
    name = fields.needed("model", "name the model, as the backend calls it")
    known = known_backend(backend)
    if name not in SHORT_NAMES or known is None or fields.has("base_url"):
        return name
    owner, model = SHORT_NAMES[name]
    if owner != known.id:
        fields.mistake(
            "model",
            f"{name!r} is short for {owner}/{model}, which {backend!r} does not serve; "
            f"name a model of its own, such as {known.models[0].name!r}",
        )
        return name
    return model


def _limits(fields: Fields) -> RateLimits:
    return RateLimits(
        concurrency=fields.integer("concurrency", None, least=1),
        rpm=fields.integer("rpm", None, least=1),
        tpm=fields.integer("tpm", None, least=1),
    )


def _defaults(fields: Fields) -> dict[str, Mention]:
    """By role; a type of task may go by its older names too."""
    named = {role: fields.mention(role) for role in ROLES}
    for word, kind in TYPES.items():
        mention = fields.mention(word)
        named[kind] = mention or named.get(kind)
    return {role: mention for role, mention in named.items() if mention}


def _health(fields: Fields) -> Health:
    normal = Health()
    silence = fields.number("silence_timeout", None, least=1)
    return Health(
        check_interval=fields.amount("check_interval", normal.check_interval, least=1),
        worker_timeout=fields.amount("worker_timeout", normal.worker_timeout, least=1),
        max_retries=fields.integer("max_retries", normal.max_retries),
        retry_delay=fields.amount("retry_delay", normal.retry_delay),
        probe=fields.flag("probe", default=normal.probe),
        silence_timeout=None if silence is None else float(silence),
    )
