"""Does a wildcard cover a text, as OpenCode reads them?"""

import re
from functools import lru_cache


def matches(wildcard: str, text: str) -> bool:
    """Whether it covers the whole text."""
    return _compiled(wildcard).fullmatch(text) is not None


@lru_cache(maxsize=1024)
def _compiled(wildcard: str) -> re.Pattern[str]:
    """`*` is any text, `?` one character, and a last ` *` may be missing: `git *` is `git` too."""
    bare = wildcard.removesuffix(" *")
    source = re.escape(bare).replace(r"\*", ".*").replace(r"\?", ".")
    return re.compile(source + ("( .*)?" if bare != wildcard else ""), re.DOTALL)
