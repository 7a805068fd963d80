"""Which words make OpenCode call again, and are they found in what it is told?"""

import re

import pytest

from goent.providers.gateway_errors import mask_retry_words, unmask_retry_words

# As OpenCode 1.18.33 has them, in `retryable` and in its test for a talk that is too long.
AGAIN = (
    "429|500|502|503|504|524",
    "rate increased too quickly|rate limit|rate-limit|rate_limit|too many requests",
    "overloaded|service unavailable|service_unavailable|internal error|internal_error|server error",
    "server_error|server-error|provider returned error|provider_returned_error",
    "terminated|fetch failed|failed to fetch|network[-_ ]error|upstream connect|connection error",
    "connection refused|connection lost|socket connection was closed|socket hang up|getaddrinfo",
    "reset before headers|enotfound|eai_again|econnrefused|econnreset|etimedout",
    "(?:request|response|connection|network|stream|read) (?:timeout|timed out|time out)",
    "try your request again|retry your request|resource exhausted|resource_exhausted",
    "try again (?:later|in)|(?:currently|temporarily) at capacity|too_many_requests",
    "exhausted|unavailable|prompt is too long|too many tokens|token limit exceeded",
    "exceeds the limit|maximum context length|reduce the length|context window exceeds",
)
SAID = [
    *(
        "answered 503: no",
        "port 45003",
        "1500429",
        "Rate limit",
        "RATE_LIMIT_EXCEEDED",
        "rate_limited",
    ),
    *("Overloaded", "Service Unavailable", "Internal Server Error", "provider returned error"),
    *("fetch failed", "network_error", "upstream connect", "connection refused", "ECONNRESET"),
    *("request timed out", "read timeout", "Please retry your request", "RESOURCE_EXHAUSTED"),
    *(
        "Try again in 5 s",
        "currently at capacity",
        "too_many_requests",
        "too many tokens per minute",
    ),
    *("prompt is too long", "token limit exceeded", "it exceeds the limit of 5", "socket hang up"),
    *("getaddrinfo EAI_AGAIN", "ENOTFOUND", "terminated", "reduce the length"),
]


@pytest.mark.parametrize("words", SAID)
def test_no_reason_is_found_in_calm_words_and_nothing_is_lost(words: str) -> None:
    reasons = [re.compile(each, re.IGNORECASE) for each in AGAIN]
    assert any(reason.search(words) for reason in reasons), "else it shows nothing"
    assert not [reason.pattern for reason in reasons if reason.search(mask_retry_words(words))]
    assert unmask_retry_words(mask_retry_words(words)) == words


def test_other_words_stay_as_they_are() -> None:
    words = "go-ent: auth_refused: backend 'glm' says no (check the backend's key)"
    assert mask_retry_words(words) == words
