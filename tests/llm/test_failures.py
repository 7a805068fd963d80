"""What providers say when they say no, as seen in the wild, and what it means."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from goent.domain.errors import (
    AuthRefused,
    ContextOverflow,
    OutOfCredit,
    Overloaded,
    ProviderDown,
    ProviderRefused,
    ProviderTimeout,
    RateLimited,
    UnknownModel,
    WorkerError,
)
from goent.domain.types import Value
from goent.providers.model_messages import ErrorPiece
from goent.providers.provider_errors import (
    RateLimitState,
    failure_from_answer,
    failure_in_stream,
    read_rate_limits,
)

NOW = 1_790_000_000.0  # 2026-09-21T14:13:20Z


class Said(Value, frozen=True, kw_only=True):
    """An answer that means `error`."""

    error: type[WorkerError]
    status: int
    message: str
    type: str = ""
    code: str | int | None = None


SAID = [
    Said(error=AuthRefused, status=401, type="authentication_error", message="invalid x-api-key"),
    Said(error=AuthRefused, status=401, code="invalid_api_key", message="Incorrect API key"),
    Said(error=AuthRefused, status=403, type="permission_error", message="not for this key"),
    Said(error=OutOfCredit, status=402, type="unknown_error", message="Insufficient Balance"),
    Said(error=OutOfCredit, status=429, code="insufficient_quota", message="You exceeded it."),
    Said(error=OutOfCredit, status=429, code="1113", message="top up, please"),
    Said(
        error=OutOfCredit,
        status=400,
        type="invalid_request_error",
        message="Your credit balance is too low to access the Anthropic API.",
    ),
    Said(
        error=ContextOverflow,
        status=400,
        type="invalid_request_error",
        message="prompt is too long: 208310 tokens > 200000 maximum",
    ),
    Said(
        error=ContextOverflow,
        status=400,
        code="context_length_exceeded",
        message="Your input exceeds the limit.",
    ),
    Said(
        error=ContextOverflow,
        status=400,
        message="This model's maximum context length is 131072 tokens.",
    ),
    Said(error=ContextOverflow, status=413, type="request_too_large", message="too large"),
    Said(error=UnknownModel, status=404, type="not_found_error", message="model: claude-9"),
    Said(error=UnknownModel, status=404, code="model_not_found", message="no access"),
    Said(error=UnknownModel, status=400, message="Model Not Exist"),
    Said(error=RateLimited, status=429, type="rate_limit_error", message="Slow down."),
    Said(error=RateLimited, status=429, message="Too many tokens, please wait."),
    Said(error=Overloaded, status=529, type="overloaded_error", message="Overloaded"),
    Said(error=Overloaded, status=429, type="engine_overloaded_error", message="later"),
    Said(error=Overloaded, status=503, type="api_error", message="unavailable"),
    Said(error=ProviderTimeout, status=504, type="timeout_error", message="timed out"),
    Said(error=ProviderTimeout, status=408, message="timed out"),
    Said(error=ProviderDown, status=500, type="api_error", message="Internal server error"),
    Said(error=ProviderDown, status=502, message="model not found in cache"),
    Said(error=ProviderRefused, status=400, type="invalid_request_error", message="bad field"),
    Said(error=ProviderRefused, status=422, message="unprocessable"),
]


@pytest.mark.parametrize("said", SAID, ids=lambda said: f"{said.status}-{said.message[:20]}")
def test_a_no_means_what_its_words_say(said: Said):
    detail = {"type": said.type, "message": said.message, "code": said.code}
    error = failure_from_answer(
        "kimi", said.status, (), msgspec.json.encode({"error": detail}), now=NOW
    )
    assert type(error) is said.error
    assert said.message in str(error) and "'kimi'" in str(error)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"error":"no"}', "no"),
        (b'{"message":"no","code":7}', "no"),
        (b'{"detail":"no"}', "no"),
        (b'[{"error":{"message":"no","code":400,"status":"INVALID_ARGUMENT"}}]', "no"),
        (b"plain no", "plain no"),
        (b"", "nothing"),
        (b"x" * 10_000_000, "x" * 500),
    ],
)
def test_whatever_was_said_is_shown_in_reason(body: bytes, shown: str):
    error = failure_from_answer("b", 400, (), body, now=NOW)
    assert type(error) is ProviderRefused
    assert str(error) == f"backend 'b' answered 400: {shown}"


def test_a_page_is_not_quoted_and_speaks_of_a_wrong_address():
    page = b"<!DOCTYPE html><html>overloaded, prompt is too long</html>"
    assert str(failure_from_answer("b", 404, (), page, now=NOW)) == (
        "backend 'b' answered 404: an HTML page (check the backend's base_url)"
    )
    assert type(failure_from_answer("b", 502, (), page, now=NOW)) is ProviderDown


def test_an_empty_account_is_not_tried_again_and_another_one_may_do():
    error = failure_from_answer("b", 402, (), b"", now=NOW)
    assert isinstance(error, OutOfCredit) and not error.retryable


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5", "retry-after-ms": "120"}, 0.12),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s"}, 360.0),
        ({"x-ratelimit-remaining-requests": "4", "x-ratelimit-reset-requests": "6m0s"}, None),
    ],
)
def test_a_rate_limit_knows_when_to_come_back(headers: dict[str, str], wait: float | None):
    error = failure_from_answer("b", 429, pairs(headers), b"", now=NOW)
    assert isinstance(error, RateLimited) and error.retry_after_s == wait


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        (ErrorPiece(message="Overloaded", kind="overloaded_error"), Overloaded),
        (ErrorPiece(message="wait", kind="rate_limit_exceeded"), RateLimited),
        (ErrorPiece(message="prompt is too long: 9 > 5"), ContextOverflow),
        (ErrorPiece(message="no answer of this dialect", kind="malformed"), ProviderDown),
    ],
)
def test_an_error_inside_a_stream_means_the_same(broken: ErrorPiece, kind: type[WorkerError]):
    assert type(failure_in_stream("b", broken)) is kind


# Headers


def pairs(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({}, RateLimitState()),
        (
            {
                "Anthropic-RateLimit-Requests-Remaining": "49",
                "Anthropic-RateLimit-Requests-Reset": "2026-09-21T14:14:20Z",
                "anthropic-ratelimit-input-tokens-remaining": "3000",
                "anthropic-ratelimit-output-tokens-remaining": "0",
                "anthropic-ratelimit-output-tokens-reset": "2026-09-21T14:13:30+00:00",
            },
            RateLimitState(requests_left=49, tokens_left=0, resets_in_s=10.0),
        ),
        (
            {
                "x-ratelimit-remaining-requests": "59",
                "x-ratelimit-remaining-tokens": "149984",
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            RateLimitState(requests_left=59, tokens_left=149984, resets_in_s=360.0),
        ),
        (
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1790000005000"},
            RateLimitState(requests_left=0, resets_in_s=5.0),
        ),
        (
            {"x-ratelimit-reset-tokens": "soon", "x-ratelimit-remaining-tokens": "nan"},
            RateLimitState(),
        ),
    ],
)
def test_both_vendors_headers_are_read(headers: dict[str, str], told: RateLimitState):
    assert read_rate_limits(pairs(headers), now=NOW) == told


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("20ms", 0.02),
        ("7.66s", 7.66),
        ("2m59.5s", 179.5),
        ("1h2m3s", 3723.0),
        ("1d", 86400.0),
        ("12", 12.0),
        ("-3", 0.0),
        ("1790000004", 4.0),
        ("Mon, 21 Sep 2026 14:13:40 GMT", 20.0),
        ("2026-09-21T14:13:40", 20.0),
        ("2020-01-01T00:00:00Z", 0.0),
        ("inf", None),
        ("9999999", None),
        ("later", None),
        ("", None),
    ],
)
def test_a_time_to_wait_has_many_forms(value: str, seconds: float | None):
    told = read_rate_limits(pairs({"retry-after": value}), now=NOW).retry_after_s
    assert told == (None if seconds is None else pytest.approx(seconds))


@given(st.lists(st.binary(max_size=30)), st.integers(100, 999), st.binary(max_size=60))
def test_no_headers_and_no_body_make_it_fail(values: list[bytes], status: int, body: bytes):
    names = ("retry-after", "x-ratelimit-reset", "anthropic-ratelimit-tokens-remaining", "x")
    headers = [(name.encode(), value) for name in names for value in values]
    assert isinstance(failure_from_answer("b", status, headers, body, now=NOW), WorkerError)
