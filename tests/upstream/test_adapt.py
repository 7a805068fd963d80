"""What a fallback is told of a request, and what is said of the rest."""

from typing import Any

import msgspec
import pytest

from goent.domain.types import Dialect, Provider, Secret
from goent.providers.call_plan import CallTarget, InboundCall
from goent.providers.call_translation import build_call, describe_omissions


def order(dialect: Dialect = "openai", **fields: object) -> InboundCall:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    return InboundCall(
        worker="w", backend="one", model="m", dialect=dialect, body=msgspec.json.encode(body)
    )


def target(
    backend: str = "two", model: str = "n", dialect: Dialect = "openai", options: bytes = b""
) -> CallTarget:
    provider = Provider(name=backend, backend=backend, model=model, options=options)
    return CallTarget(
        provider=provider,
        dialect=dialect,
        base_url="http://127.0.0.1:9/v1",
        key=Secret("k"),
        headers=(("X-Team", Secret("blue")),),
    )


def sent(asked: InboundCall, to: CallTarget) -> dict[str, Any]:
    return msgspec.json.decode(build_call(asked, to).body, type=dict[str, Any])


IN_WORDS = "for JSON in words, because it has no response_format json_object"
ANY_JSON = {"type": "json_object"}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("asked", "to", "told"),
    [
        (order(reasoning_effort="high", seed=1), target("one", "m"), ""),
        (order(), target(), ""),
        (order(user="u", store=False, response_format=SCHEMA), target(dialect="anthropic"), ""),
        (order(response_format=ANY_JSON), target(), ""),
        (
            order(reasoning_effort="high"),
            target(),
            "without reasoning_effort, which it may not support",
        ),
        (order(reasoning_effort="high"), target("one", "other"), ""),
        (
            order(seed=7, logprobs=True),
            target(),
            "without logprobs, seed, which it may not support",
        ),
        (
            order(
                "anthropic",
                thinking={"type": "enabled", "budget_tokens": 2000},
                output_config={"effort": "low"},
            ),
            target(),
            "without output_config.effort, thinking, which it may not support",
        ),
        (
            order(response_format=ANY_JSON, seed=7),
            target(dialect="anthropic"),
            f"without seed, which it may not support, and {IN_WORDS}",
        ),
    ],
)
def test_what_is_left_out_is_named(asked: InboundCall, to: CallTarget, told: str) -> None:
    assert describe_omissions(asked, to) == told


def test_the_form_of_the_answer_is_translated() -> None:
    asked = order(response_format=SCHEMA)
    assert sent(asked, target())["response_format"] == SCHEMA
    form = {"type": "json_schema", "schema": {"type": "object"}}
    assert sent(asked, target(dialect="anthropic"))["output_config"] == {"format": form}


def test_a_fallback_has_its_own_options_and_headers() -> None:
    to = target(options=b'{"reasoningEffort":"low"}')
    assert sent(order(reasoning_effort="high"), to)["reasoning_effort"] == "low"
    assert build_call(order(), to).secret_headers == (("X-Team", Secret("blue")),)


def test_the_one_that_was_asked_for_gets_it_byte_for_byte() -> None:
    asked = order(seed=1)
    assert build_call(asked, target("one", "m", options=b'{"seed":2}')).body == asked.body
