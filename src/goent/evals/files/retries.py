"""Which failures of a target are tried again, how often, and after which waits?"""

from collections.abc import Mapping
from typing import Final

from goent.config.fields import Fields
from goent.domain.errors import Overloaded, ProviderDown, ProviderTimeout, RateLimited, WorkerError
from goent.evals.suites import AGENTS, Retry

# What a status is a sign of. Vendors mean different things by one, so it is the failure that counts.
_SIGNS: Final[Mapping[str, tuple[type[WorkerError], ...]]] = {
    "408": (ProviderTimeout,),
    "429": (RateLimited,),
    "500": (ProviderDown,),
    "502": (ProviderDown,),
    "503": (ProviderDown, Overloaded),
    "504": (ProviderTimeout,),
    "529": (ProviderDown, Overloaded),
}
_KINDS: Final = frozenset(error.kind for errors in _SIGNS.values() for error in errors)
_WITHOUT: Final[Mapping[str, str]] = {
    "cli": "a command fails by its exit code, which is no status of HTTP",
    "mock": "a fixed answer cannot fail",
    "replay": "a recording cannot fail",
}


def read_retry(fields: Fields, kind: str) -> Retry:
    """Of a target of that kind."""
    usual = Retry()
    return Retry(
        max_retries=fields.integer("max_retries", usual.max_retries),
        initial_delay_s=_seconds(fields, "retry_initial_delay_ms", usual.initial_delay_s),
        max_delay_s=_seconds(fields, "retry_max_delay_ms", usual.max_delay_s),
        factor=fields.amount("retry_backoff_factor", usual.factor, least=1),
        never=_never(fields, kind),
    )


def _never(fields: Fields, kind: str) -> tuple[str, ...]:
    """Of the failures that have a status, those of which none was named."""
    key = "retry_status_codes"
    if not fields.has(key):
        return ()
    if kind not in AGENTS:
        if why := _WITHOUT.get(kind):
            fields.mistake(key, f"{why}; take it away")
        return ()
    codes = fields.texts(key)
    for code in codes:
        if code not in _SIGNS:
            fields.mistake(
                key, f"{code!r} is no status that may pass; those are {', '.join(_SIGNS)}"
            )
    named = {error.kind for code in codes for error in _SIGNS.get(code, ())}
    return tuple(sorted(_KINDS - named))


def _seconds(fields: Fields, key: str, default: float) -> float:
    value = fields.amount(key, None)
    return default if value is None else value / 1000
