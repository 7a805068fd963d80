"""How many tokens did a model call take, by what the provider says in its answer?

Fed with the answer's bytes as they pass, stream or plain JSON. Most pieces of a stream cannot
tell anything, so only those that name a usage are parsed. What makes no sense counts as unknown.
"""

import re
from collections.abc import Iterable
from contextlib import suppress

import msgspec
from msgspec import Raw, Struct

from goent.domain.types import Dialect, Usage
from goent.llm.errors import error_text
from goent.llm.sse import SseEvent, SseSplitter
from goent.llm.tokens import UNREADABLE, figures

MOST_BODY = 16 * 1024 * 1024

_TOLD = re.compile(rb'"usage"\s*:\s*\{')  # OpenAI says `null` in every piece but the last
_ERROR = re.compile(rb'"error"\s*:\s*[{"]')


class _OpenAiChoice(Struct):
    usage: Raw = Raw()  # Moonshot, in streams


class _OpenAiAnswer(Struct):
    usage: Raw = Raw()
    choices: list[_OpenAiChoice] | None = None


class _AnthropicMessage(Struct):
    usage: Raw = Raw()


class _AnthropicAnswer(Struct):
    message: _AnthropicMessage | None = None  # in `message_start`
    usage: Raw = Raw()  # in `message_delta`, and in a plain answer


class _OpenAi:
    finish = re.compile(rb'"finish_reason"\s*:\s*"')
    _decode = msgspec.json.Decoder(_OpenAiAnswer).decode

    def places(self, answer: bytes) -> Iterable[Raw]:
        parsed = self._decode(answer)
        return parsed.usage, *(choice.usage for choice in parsed.choices or ())

    def is_last(self, event: SseEvent) -> bool:
        return event.data == b"[DONE]"


class _Anthropic:
    finish = re.compile(rb'"stop_reason"\s*:\s*"')
    _decode = msgspec.json.Decoder(_AnthropicAnswer).decode

    def places(self, answer: bytes) -> Iterable[Raw]:
        parsed = self._decode(answer)
        return parsed.usage, *((parsed.message.usage,) if parsed.message else ())

    def is_last(self, event: SseEvent) -> bool:
        return event.event == b"message_stop"


class UsageCounter:
    """Watches one answer.

    `finished`: it told why it stops; `ended`: nothing will follow; `error`: what a stream that
    began well said about its failure.
    """

    def __init__(self, dialect: Dialect, *, stream: bool) -> None:
        self.finished = False
        self.ended = False
        self.error = ""
        self._figures = figures(dialect)
        self._reading = _OpenAi() if dialect == "openai" else _Anthropic()
        self._splitter = SseSplitter() if stream else None
        self._body = bytearray()

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
        return self._figures.usage

    def _look(self, event: SseEvent) -> None:
        reading = self._reading
        self.finished = self.finished or bool(reading.finish.search(event.data))
        self.ended = self.ended or reading.is_last(event)
        if b'"error"' in event.data and _ERROR.search(event.data):
            self.finished, self.error = True, error_text(event.data)
        self._read(event.data)

    def _read(self, answer: bytes) -> None:
        if b'"usage"' in answer and _TOLD.search(answer):
            with suppress(*UNREADABLE):
                for told in self._reading.places(answer):
                    self._figures.add(bytes(told))
