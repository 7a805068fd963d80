"""Reads and writes token usage as vendors report it, and drops figures that make no sense.

What makes no sense counts as unknown: a figure that is negative, no number, or beyond reason.

OpenCode shortens its talk, by another call, when an answer's tokens are beyond the model's window. With
a provider that always tells nonsense it does nothing else any more.
"""

import re
from typing import Protocol

import msgspec
from msgspec import Raw, Struct

from goent.domain.types import Dialect, Usage

MAX_CALL_TOKENS = 100_000_000  # in one call; beyond it somebody counts something else
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class UsageReader(Protocol):
    """What one answer has told about its tokens so far."""

    def add(self, told: bytes) -> None:
        """Take in the JSON of a `usage`."""
        ...

    @property
    def usage(self) -> Usage | None:
        """All of it; None if nothing sensible was told."""
        ...


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
    """Each `usage` replaces the one before."""

    def __init__(self) -> None:
        self._last: _OpenAiUsage | None = None

    def add(self, told: bytes) -> None:
        try:
            self._last = _decode_openai(told)
        except DECODE_ERRORS:
            return

    @property
    def usage(self) -> Usage | None:
        told = self._last
        if told is None or told.prompt_tokens is None:
            return None
        prompt, completion = told.prompt_tokens, told.completion_tokens or 0
        asked = told.prompt_tokens_details or _TokenDetails()
        given = told.completion_tokens_details or _TokenDetails()
        read = asked.cached_tokens or told.prompt_cache_hit_tokens or told.cached_tokens or 0
        written = asked.cache_write_tokens or 0
        reasoning = given.reasoning_tokens or 0
        # Some providers count reasoning beside the completion: then only the total adds up.
        beside = reasoning > completion or told.total_tokens == prompt + completion + reasoning
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
    """Running totals; but some providers tell a figure first as 0, or only once."""

    def __init__(self) -> None:
        self._usage: Usage | None = None

    def add(self, told: bytes) -> None:
        try:
            figures = _decode_anthropic(told)
        except DECODE_ERRORS:
            return
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
        return self._usage and _plausible_usage(self._usage)


def usage_reader(dialect: Dialect) -> UsageReader:
    return OpenAiUsageReader() if dialect == "openai" else AnthropicUsageReader()


def is_plausible_usage(dialect: Dialect, told: bytes) -> bool:
    """Could this be the JSON of a `usage`, or of a part of one?"""
    try:
        if dialect == "openai":
            parsed = _decode_openai(told)
            parts = (parsed.prompt_tokens, parsed.completion_tokens, parsed.total_tokens)
        else:
            parts = msgspec.structs.astuple(_decode_anthropic(told))
    except DECODE_ERRORS:
        return bytes(told).strip() == b"null"
    return all(part is None or 0 <= part <= MAX_CALL_TOKENS for part in parts)


def openai_usage(usage: Usage) -> dict[str, object]:
    """The same as OpenAI would say it: all of the prompt in one, reasoning inside the rest."""
    prompt = usage.input + usage.cache_read + usage.cache_write
    completion = usage.output + usage.reasoning
    asked = {"cached_tokens": usage.cache_read}
    if usage.cache_write:
        asked["cache_write_tokens"] = usage.cache_write
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": asked,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def anthropic_usage(usage: Usage) -> dict[str, int]:
    """The same as Anthropic would say it: reasoning is output."""
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
    """The same answer, or piece of one, without a usage that makes no sense."""
    if b'"usage"' not in answer or not _USAGE_FIELD.search(answer):
        return answer
    try:
        return _without_implausible_usage(dialect, answer)
    except DECODE_ERRORS:
        return answer  # whoever reads it will say so


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
