"""Which figures of a provider may a worker's program be shown?

OpenCode shortens its talk, by another call, when an answer's tokens are beyond the model's window. With
a provider that always tells nonsense it does nothing else any more.
"""

import re

import msgspec
from msgspec import Raw

from goent.domain.types import Dialect
from goent.llm.tokens import UNREADABLE, makes_sense

_TOLD = re.compile(rb'"usage"\s*:\s*\{')
_INSTEAD: dict[Dialect, Raw] = {
    "openai": Raw(b"null"),
    "anthropic": Raw(b'{"input_tokens":0,"output_tokens":0}'),
}
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def sane(dialect: Dialect, answer: bytes) -> bytes:
    """The same answer, or piece of one, without a usage that makes no sense."""
    if b'"usage"' not in answer or not _TOLD.search(answer):
        return answer
    try:
        return _mended(dialect, answer)
    except UNREADABLE:
        return answer  # whoever reads it will say so


def _mended(dialect: Dialect, answer: bytes) -> bytes:
    fields = _fields(answer)
    message = fields.get("message")  # Anthropic's, in `message_start`
    if dialect == "anthropic" and message is not None:
        mended = _mended(dialect, bytes(message))
        if mended == bytes(message):
            return answer
        fields["message"] = Raw(mended)
    elif "usage" in fields and not makes_sense(dialect, bytes(fields["usage"])):
        fields["usage"] = _INSTEAD[dialect]
    else:
        return answer
    return msgspec.json.encode(fields)
