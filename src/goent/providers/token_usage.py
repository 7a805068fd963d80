"""Reads and writes token usage as vendors report it, and drops implausible figures.

A figure that is negative, not a number or far too large counts as unknown. It must not reach
OpenCode either, which compacts its session with another call whenever an answer's tokens exceed the
model's window.
"""

import re
from contextlib import suppress

import msgspec
from msgspec import Raw, Struct

from goent.domain.types import Dialect, Usage

MAX_CALL_TOKENS = 100_000_000  # more in one call is not a count of tokens
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _TokenDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None  # OpenRouter
    reasoning_tokens: int | None = None


class _OpenAiUsage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _TokenDetails | None = None
    completion_tokens_details: _TokenDetails | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek
    cached_tokens: int | None = None  # Moonshot


class _AnthropicUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


_decode_openai = msgspec.json.Decoder(_OpenAiUsage).decode
_decode_anthropic = msgspec.json.Decoder(_AnthropicUsage).decode


class OpenAiUsageReader:
    """Reads the `usage` of one answer; each replaces the one before."""

    def __init__(self) -> None:
        self._last: _OpenAiUsage | None = None

    def update(self, encoded: bytes) -> Usage | None:
        """Take in the JSON of a `usage`; all that is known if that changed it to something new."""
        before = self.usage
        with suppress(*DECODE_ERRORS):
            self._last = _decode_openai(encoded)
        return self.usage if self.usage != before else None

    @property
    def usage(self) -> Usage | None:
        """All of it; None if nothing plausible was reported."""
        last = self._last
        if last is None or last.prompt_tokens is None:
            return None
        prompt, completion = last.prompt_tokens, last.completion_tokens or 0
        prompt_details = last.prompt_tokens_details or _TokenDetails()
        details = last.completion_tokens_details or _TokenDetails()
        read = (
            prompt_details.cached_tokens or last.prompt_cache_hit_tokens or last.cached_tokens or 0
        )
        written = prompt_details.cache_write_tokens or 0
        reasoning = details.reasoning_tokens or 0
        # Some providers count reasoning beside the completion: then only the total adds up.
        beside = reasoning > completion or last.total_tokens == prompt + completion + reasoning
        cached = read + written
        return _plausible_usage(
            Usage(
                input=prompt - cached if cached <= prompt else prompt,
                output=completion if beside else completion - reasoning,
                cache_read=read,
                cache_write=written,
                reasoning=reasoning,
            )
        )


class AnthropicUsageReader:
    """Reads the `usage` of one answer: running totals, though some report a figure once or as 0."""

    def __init__(self) -> None:
        self._usage: Usage | None = None

    def update(self, encoded: bytes) -> Usage | None:
        """Take in the JSON of a `usage`; all that is known if that changed it to something new."""
        before = self.usage
        with suppress(*DECODE_ERRORS):
            self._add(_decode_anthropic(encoded))
        return self.usage if self.usage != before else None

    def _add(self, figures: _AnthropicUsage) -> None:
        if self._usage or figures.input_tokens is not None:
            before = self._usage or Usage()
            self._usage = Usage(
                input=max(before.input, figures.input_tokens or 0),
                output=max(before.output, figures.output_tokens or 0),
                cache_read=max(before.cache_read, figures.cache_read_input_tokens or 0),
                cache_write=max(before.cache_write, figures.cache_creation_input_tokens or 0),
            )

    @property
    def usage(self) -> Usage | None:
        """All of it; None if nothing plausible was reported."""
        return self._usage and _plausible_usage(self._usage)


def is_plausible_usage(dialect: Dialect, encoded: bytes) -> bool:
    """Whether this can be the JSON of a `usage`, or of a part of one."""
    try:
        if dialect == "openai":
            usage = _decode_openai(encoded)
            parts = (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens)
        else:
            parts = msgspec.structs.astuple(_decode_anthropic(encoded))
    except DECODE_ERRORS:
        return encoded.strip() == b"null"
    return all(part is None or 0 <= part <= MAX_CALL_TOKENS for part in parts)


def openai_usage(usage: Usage) -> dict[str, object]:
    """The usage in OpenAI's fields: the whole prompt in one, reasoning within the completion."""
    prompt = usage.input + usage.cache_read + usage.cache_write
    completion = usage.output + usage.reasoning
    prompt_details = {"cached_tokens": usage.cache_read}
    if usage.cache_write:
        prompt_details["cache_write_tokens"] = usage.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": prompt_details,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def anthropic_usage(usage: Usage) -> dict[str, int]:
    """The usage in Anthropic's fields: reasoning is output."""
    return {
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": usage.output + usage.reasoning,
    }


def _plausible_usage(usage: Usage) -> Usage | None:
    parts = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    return usage if min(parts) >= 0 and 0 < usage.total <= MAX_CALL_TOKENS else None


_USAGE_FIELD = re.compile(rb'"usage"\s*:\s*\{')
_EMPTY_USAGE: dict[Dialect, Raw] = {
    "openai": Raw(b"null"),
    "anthropic": Raw(b'{"input_tokens":0,"output_tokens":0}'),
}
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def drop_implausible_usage(dialect: Dialect, answer: bytes) -> bytes:
    """The answer, or a piece of one, with an implausible usage replaced by an empty one."""
    if b'"usage"' not in answer or not _USAGE_FIELD.search(answer):
        return answer
    try:
        return _without_implausible_usage(dialect, answer)
    except DECODE_ERRORS:
        return answer  # whoever decodes it reports the error


def _without_implausible_usage(dialect: Dialect, answer: bytes) -> bytes:
    fields = _decode_fields(answer)
    message = fields.get("message")  # Anthropic's, in `message_start`
    if dialect == "anthropic" and message is not None:
        mended = _without_implausible_usage(dialect, bytes(message))
        if mended == bytes(message):
            return answer
        fields["message"] = Raw(mended)
    elif "usage" in fields and not is_plausible_usage(dialect, bytes(fields["usage"])):
        fields["usage"] = _EMPTY_USAGE[dialect]
    else:
        return answer
    return msgspec.json.encode(fields)
