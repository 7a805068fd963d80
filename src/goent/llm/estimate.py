"""How many tokens is a text, roughly, before any provider has counted it?

Tokenizers differ and must be downloaded; what they have in common need not be. They cut where
kinds of characters meet, so counting those places tells most of it. The weights were fitted to
Python, Markdown and JSON under two vocabularies (cl100k, o200k); what a provider's own tokenizer
makes of it is left to `calibration`. Every pattern takes time linear in the text.
"""

import re
from typing import Final

_MARKS: Final = r"!-/:-@\[-`{-~"
_CONTROLS: Final = r"\x00-\x08\x0e-\x1f\x7f"

# A pattern, what stands for a match in the text that the next pattern sees, and its weight: with
# words and figures cut down to one character, the others have little left to read.
_STEPS: Final = tuple(
    (re.compile(pattern), left, weight)
    for pattern, left, weight in (
        (r"[A-Z]?[a-z]{1,8}|[A-Z]{1,4}(?![a-z])", "a", 0.86),
        (r"[0-9]{1,3}", "0", 1.05),
        (r"[ \t]{2,80}", " ", 0.8),
        (rf"(?<![{_MARKS}])[\r\n]{{1,16}}", "\n", 0.65),
        (rf"[{_MARKS}{_CONTROLS}]{{1,4}}", "!", 1.3),
        (r"!a", "!", -0.43),  # often one token: `.append`, `(self`
    )
)
_FOREIGN: Final = tuple(
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
        tokens += sum(weight * pattern.subn("", text)[1] for pattern, weight in _FOREIGN)
    for pattern, left, weight in _STEPS:
        text, found = pattern.subn(left, text)
        tokens += weight * found
    return max(1, round(tokens))
