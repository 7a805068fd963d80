"""What does an ACP agent's refusal mean to the caller, as far as any agent says it alike?

A call that goes through the gateway fails in the gateway's words, which say the kind of failure.
"""

import re

from goent.domain.errors import ProviderDown, ProviderTimeout, UnknownModel, WorkerError

AUTH_REQUIRED = -32000

_BY_WORDS: tuple[tuple[re.Pattern[str], type[WorkerError]], ...] = (
    (re.compile(r"model not found", re.IGNORECASE), UnknownModel),
    (re.compile(r"timed? ?out", re.IGNORECASE), ProviderTimeout),
    (re.compile(r"connect|socket|network|fetch failed", re.IGNORECASE), ProviderDown),
    (re.compile(r"without a finish reason"), ProviderDown),
)


def by_words(message: str) -> type[WorkerError]:
    """All that is left where nothing but the message tells."""
    found = (kind for words, kind in _BY_WORDS if words.search(message))
    return next(found, WorkerError)
