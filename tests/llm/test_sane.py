"""A provider's nonsense is not passed on as figures to act on."""

import msgspec
import pytest

from goent.domain.types import Dialect
from goent.providers.token_usage import drop_implausible_usage

BAD = [b'"many"', b"-5", b"1e300", b"99999999999999999999999", b"[1]"]


@pytest.mark.parametrize("figure", BAD)
def test_nonsense_is_taken_out_and_the_rest_stays(figure: bytes) -> None:
    answer = b'{"id":"c1","choices":[],"usage": {"prompt_tokens":%b}}' % figure
    assert msgspec.json.decode(drop_implausible_usage("openai", answer)) == {
        "id": "c1",
        "choices": [],
        "usage": None,
    }
    begun = b'{"type":"message_start","message":{"id":"m","usage":{"input_tokens":%b}}}' % figure
    none = {"input_tokens": 0, "output_tokens": 0}
    assert msgspec.json.decode(drop_implausible_usage("anthropic", begun)) == {
        "type": "message_start",
        "message": {"id": "m", "usage": none},
    }
    ended = b'{"type":"message_delta","usage":{"output_tokens":%b}}' % figure
    assert msgspec.json.decode(drop_implausible_usage("anthropic", ended))["usage"] == none


@pytest.mark.parametrize(
    ("dialect", "answer"),
    [
        ("openai", b'{"choices":[],"usage":null}'),
        ("openai", b'{"usage": {"prompt_tokens": 0, "completion_tokens": 0}}'),
        ("openai", b'{"usage":{"prompt_tokens":7,"completion_tokens":null}}'),
        ("openai", b'{"choices":[{"delta":{"content":"\\"usage\\": {"}}]}'),
        ("openai", b'{"usage":{ {{'),
        ("anthropic", b'{"message":{"usage":{"input_tokens":9,"output_tokens":1}}}'),
        ("anthropic", b'{"usage":{"output_tokens":5}}'),
    ],
)
def test_everything_else_stays_byte_for_byte(dialect: Dialect, answer: bytes) -> None:
    assert drop_implausible_usage(dialect, answer) is answer
