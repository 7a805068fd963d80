"""How many tokens did a model call take, by what the provider says in its answer?

Fed with the answer's bytes as they pass, stream or plain JSON. Most pieces of a stream cannot
tell anything, so only those that name a usage are parsed. What makes no sense counts as unknown.
"""

import re
from contextlib import suppress

import msgspec
from msgspec import Struct

from goent.domain.types import Dialect, Usage
from goent.llm.errors import error_text
from goent.llm.sse import SseEvent, SseSplitter

MOST_BODY = 16 * 1024 * 1024
MOST_TOKENS = 100_000_000  # in one call; beyond it somebody counts something else

_TOLD = re.compile(rb'"usage"\s*:\s*\{')  # OpenAI says `null` in every piece but the last
_ERROR = re.compile(rb'"error"\s*:\s*[{"]')


class _OpenAiDetails(Struct):
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


class _OpenAiUsage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _OpenAiDetails | None = None
    completion_tokens_details: _OpenAiDetails | None = None
    prompt_cache_hit_tokens: int | None = None  # DeepSeek
    cached_tokens: int | None = None  # Moonshot


class _OpenAiChoice(Struct):
    usage: _OpenAiUsage | None = None  # Moonshot, in streams


class _OpenAiAnswer(Struct):
    usage: _OpenAiUsage | None = None
    choices: list[_OpenAiChoice] | None = None


class _AnthropicUsage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class _AnthropicMessage(Struct):
    usage: _AnthropicUsage | None = None


class _AnthropicAnswer(Struct):
    message: _AnthropicMessage | None = None  # in `message_start`
    usage: _AnthropicUsage | None = None  # in `message_delta`, and in a plain answer


class _OpenAi:
    finish = re.compile(rb'"finish_reason"\s*:\s*"')
    _decode = msgspec.json.Decoder(_OpenAiAnswer).decode

    def __init__(self) -> None:
        self._last: _OpenAiUsage | None = None

    def read(self, answer: bytes) -> None:
        parsed = self._decode(answer)
        told = [parsed.usage, *(choice.usage for choice in parsed.choices or ())]
        self._last = next((usage for usage in told if usage), self._last)

    def is_last(self, event: SseEvent) -> bool:
        return event.data == b"[DONE]"

    def usage(self) -> Usage | None:
        told = self._last
        if told is None or told.prompt_tokens is None:
            return None
        prompt, completion = told.prompt_tokens, told.completion_tokens or 0
        asked = told.prompt_tokens_details or _OpenAiDetails()
        given = told.completion_tokens_details or _OpenAiDetails()
        cached = asked.cached_tokens or told.prompt_cache_hit_tokens or told.cached_tokens or 0
        reasoning = given.reasoning_tokens or 0
        # Some providers count reasoning beside the completion: then only the total adds up.
        beside = reasoning > completion or told.total_tokens == prompt + completion + reasoning
        return Usage(
            input=prompt - cached if cached <= prompt else prompt,
            output=completion if beside else completion - reasoning,
            cache_read=cached,
            reasoning=reasoning,
        )


class _Anthropic:
    finish = re.compile(rb'"stop_reason"\s*:\s*"')
    _decode = msgspec.json.Decoder(_AnthropicAnswer).decode

    def __init__(self) -> None:
        self._usage: Usage | None = None

    def read(self, answer: bytes) -> None:
        parsed = self._decode(answer)
        told = parsed.usage or (parsed.message and parsed.message.usage)
        if told and (self._usage or told.input_tokens is not None):
            # Running totals; but some providers tell a figure first as 0, or only once.
            before = self._usage or Usage()
            self._usage = Usage(
                input=max(before.input, told.input_tokens or 0),
                output=max(before.output, told.output_tokens or 0),
                cache_read=max(before.cache_read, told.cache_read_input_tokens or 0),
                cache_write=max(before.cache_write, told.cache_creation_input_tokens or 0),
            )

    def is_last(self, event: SseEvent) -> bool:
        return event.event == b"message_stop"

    def usage(self) -> Usage | None:
        return self._usage


class UsageCounter:
    """Watches one answer.

    `finished`: it told why it stops; `ended`: nothing will follow; `error`: what a stream that
    began well said about its failure.
    """

    def __init__(self, dialect: Dialect, *, stream: bool) -> None:
        self.finished = False
        self.ended = False
        self.error = ""
        self._reading = _OpenAi() if dialect == "openai" else _Anthropic()
        self._splitter = SseSplitter() if stream else None
        self._body = bytearray()

    @property
    def whole(self) -> bool:
        """What was told is all: a stream that was cut may have told the beginning of it."""
        return self._splitter is None or (self.finished and not self.error)

    def feed(self, piece: bytes) -> None:
        """Look at the next bytes of the answer."""
        if self._splitter:
            for event in self._splitter.feed(piece):
                self._look(event)
        elif len(self._body) <= MOST_BODY:
            self._body += piece

    def close(self) -> Usage | None:
        """What the answer told, now that it is over or was cut off; None if nothing sensible."""
        if self._splitter:
            for event in self._splitter.close():
                self._look(event)
        elif len(self._body) <= MOST_BODY:
            self._read(bytes(self._body))
        usage = self._reading.usage()
        return usage if usage and _sensible(usage) else None

    def _look(self, event: SseEvent) -> None:
        reading = self._reading
        self.finished = self.finished or bool(reading.finish.search(event.data))
        self.ended = self.ended or reading.is_last(event)
        if b'"error"' in event.data and _ERROR.search(event.data):
            self.finished, self.error = True, error_text(event.data)
        self._read(event.data)

    def _read(self, answer: bytes) -> None:
        if b'"usage"' in answer and _TOLD.search(answer):
            with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self._reading.read(answer)


def _sensible(usage: Usage) -> bool:
    parts = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
    return min(parts) >= 0 and 0 < usage.total <= MOST_TOKENS
