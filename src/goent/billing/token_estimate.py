"""Estimates the tokens of a text, and corrects the estimate by each model's own counts.

Tokenizers differ and must be downloaded; what they have in common need not be. They cut where
kinds of characters meet, so counting those places tells most of it. The weights were fitted to
Python, Markdown and JSON under two vocabularies (cl100k, o200k); what a provider's own tokenizer
makes of it is left to `calibration`. Every pattern takes time linear in the text.
"""

import re
from typing import Final, Self

from msgspec.structs import replace

from goent.domain.types import Value

_PUNCTUATION: Final = r"!-/:-@\[-`{-~"
_CONTROLS: Final = r"\x00-\x08\x0e-\x1f\x7f"

# A pattern, what stands for a match in the text that the next pattern sees, and its weight: with
# words and figures cut down to one character, the others have little left to read.
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


MIN_TOKENS: Final = 100  # below, a provider's own preamble outweighs what was estimated
MAX_RATIO: Final = 4.0  # no tokenizer is so far off: then something else was counted
MIN_SAMPLES: Final = 3  # samples before anything is corrected
SAMPLE_WINDOW: Final = 10  # about so many of the last samples count
MAX_STEP: Final = 1.5  # a sample counts as at most so far from what was learned before


class Calibration(Value, frozen=True, kw_only=True):
    """A moving average of actual by estimated tokens, and how many samples it rests on."""

    factor: float = 1.0
    samples: int = 0

    def after(self, *, estimated: int, actual: int) -> Self:
        """What is known after one more call; a sample that tells nothing changes nothing."""
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
        """The estimate as this model's tokenizer would probably have it."""
        if self.samples < MIN_SAMPLES or not estimated:
            return estimated
        return max(1, round(estimated * self.factor))
