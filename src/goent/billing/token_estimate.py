"""Estimates the tokens of a text or a call, and corrects estimates by each model's own counts.

Tokenizers differ and must be downloaded. But all of them cut where kinds of characters meet, so
counting those places comes close. The weights were fitted to Python, Markdown and JSON under two
vocabularies (cl100k, o200k); `Calibration` learns how a model's own tokenizer differs. Every pattern
takes time linear in the text.
"""

import re
from typing import Final, Self

import msgspec
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from goent.domain.money import Calibrations, CallSize
from goent.domain.types import Provider, Usage, Value

_PUNCTUATION: Final = r"!-/:-@\[-`{-~"
_CONTROLS: Final = r"\x00-\x08\x0e-\x1f\x7f"

# A pattern, what replaces a match before the next pattern, and its weight: with words and figures
# cut down to one character, the others have little left to read.
_PATTERNS: Final = tuple(
    (re.compile(pattern), left, weight)
    for pattern, left, weight in (
        (r"[A-Z]?[a-z]{1,8}|[A-Z]{1,4}(?![a-z])", "a", 0.86),
        (r"[0-9]{1,3}", "0", 1.05),
        (r"[ \t]{2,80}", " ", 0.8),
        (rf"(?<![{_PUNCTUATION}])[\r\n]{{1,16}}", "\n", 0.65),
        (rf"[{_PUNCTUATION}{_CONTROLS}]{{1,4}}", "!", 1.3),
        (r"!a", "!", -0.43),  # often one token: `.append`, `(self`
    )
)
_NON_ASCII: Final = tuple(
    (re.compile(pattern), weight)
    for pattern, weight in (
        (r"[^\x00-\x7f]", 0.75),
        (r"[\u0080-\u00bf\u2000-\u2bff\ufe00-\ufe0f]", 0.35),  # dashes, arrows, boxes
        (r"[\U00010000-\U0010ffff]", 1.25),  # emoji above all
    )
)


def estimate_tokens(text: str) -> int:
    """Within a tenth for code and English prose; at least 1 unless the text is empty."""
    if not text:
        return 0
    tokens = 0.0
    if not text.isascii():
        tokens += sum(weight * pattern.subn("", text)[1] for pattern, weight in _NON_ASCII)
    for pattern, left, weight in _PATTERNS:
        text, found = pattern.subn(left, text)
        tokens += weight * found
    return max(1, round(tokens))


MIN_TOKENS: Final = 100  # below, a provider's own preamble outweighs the estimate
MAX_RATIO: Final = 4.0  # no tokenizer is further off: something else was counted
MIN_SAMPLES: Final = 3  # before anything is corrected
SAMPLE_WINDOW: Final = 10  # the last samples that count, roughly
MAX_STEP: Final = 1.5  # a sample moves the factor as if it were at most this far off


class Calibration(Value, frozen=True, kw_only=True):
    """A moving average of actual by estimated tokens, and how many samples it rests on."""

    factor: float = 1.0
    samples: int = 0

    def after(self, *, estimated: int, actual: int) -> Self:
        """The calibration after one more call; an implausible sample changes nothing."""
        if estimated < MIN_TOKENS or not estimated / MAX_RATIO <= actual <= estimated * MAX_RATIO:
            return self
        ratio = actual / estimated
        if self.samples >= MIN_SAMPLES:
            ratio = min(max(ratio, self.factor / MAX_STEP), self.factor * MAX_STEP)
        weight = 1 / min(self.samples + 1, SAMPLE_WINDOW)
        return replace(
            self,
            factor=self.factor + weight * (ratio - self.factor),
            samples=self.samples + 1,
        )

    def corrected(self, estimated: int) -> int:
        """The estimate, corrected to this model's tokenizer once enough is known."""
        if self.samples < MIN_SAMPLES or not estimated:
            return estimated
        return max(1, round(estimated * self.factor))


MAX_LEARNED_BYTES: Final = 200_000  # of a request that is estimated only to learn from it
LEARN_EVERY: Final = 8  # calls of a model
LIKELY_OUTPUT: Final = 4096  # tokens: clients allow for ten times what answers take
_BINARY: Final = re.compile(r"[A-Za-z0-9+/=]{2000,}")  # pictures are not billed by the letter


class NoCalibrations:
    """The port `Calibrations` that learns nothing."""

    def corrected(self, backend: str, model: str, estimated: int) -> int:
        return estimated

    async def learn(self, backend: str, model: str, *, estimated: int, actual: int) -> None: ...


class TokenGauge:
    """Estimates the size of calls, and learns from some of those whose size is known."""

    def __init__(self, calibrations: Calibrations | None = None) -> None:
        self._calibrations = calibrations or NoCalibrations()
        self._calls: dict[tuple[str, str], int] = {}

    async def size(self, body: bytes, provider: Provider) -> CallSize:
        """The size of a request, as the provider's model is likely to count it."""
        estimated = await to_thread.run_sync(_prompt_tokens, body)
        return CallSize(
            input=self._calibrations.corrected(provider.backend, provider.model, estimated),
            output=_likely_output(body),
        )

    async def learn(self, body: bytes, provider: Provider, usage: Usage) -> None:
        key = (provider.backend, provider.model)
        before = self._calls.get(key, 0)
        self._calls[key] = before + 1
        if before % LEARN_EVERY or len(body) > MAX_LEARNED_BYTES:
            return
        estimated = await to_thread.run_sync(_prompt_tokens, body)
        actual = usage.input + usage.cache_read + usage.cache_write
        await self._calibrations.learn(*key, estimated=estimated, actual=actual)


def _prompt_tokens(body: bytes) -> int:
    return estimate_tokens(_BINARY.sub("", body.decode(errors="replace")))


class _OutputLimits(Struct):
    max_tokens: int | None = None
    max_completion_tokens: int | None = None


def _likely_output(body: bytes) -> int:
    try:
        limits = msgspec.json.decode(body, type=_OutputLimits)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return LIKELY_OUTPUT  # the provider will complain about it
    most = limits.max_completion_tokens or limits.max_tokens or LIKELY_OUTPUT
    return min(max(most, 0), LIKELY_OUTPUT)
