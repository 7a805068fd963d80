"""Is this text, how is it written down, and what did the model see of it?"""

from hashlib import blake2b
from pathlib import Path

from goent.domain.types import Value

BOM = "\N{ZERO WIDTH NO-BREAK SPACE}"
SNIFFED = 8192
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "PDF"),
    (b"PK\x03\x04", "zip archive"),
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x7fELF", "ELF program"),
    (b"SQLite format 3\x00", "SQLite database"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
)


class Written(Value, frozen=True, kw_only=True):
    """A file's text, without its byte order mark. Bytes that are no UTF-8 are kept as surrogates."""

    text: str
    marked: bool = False

    def encoded(self) -> bytes:
        return self.whole.encode(errors="surrogateescape")

    @property
    def whole(self) -> str:
        return BOM + self.text if self.marked else self.text

    @property
    def odd(self) -> bool:
        """Not all of it is UTF-8."""
        return not self.text.isascii() and clean(self.text) != self.text


def written(data: bytes | str) -> Written:
    text = data if isinstance(data, str) else data.decode(errors="surrogateescape")
    return Written(text=text.removeprefix(BOM), marked=text.startswith(BOM))


def as_stored(text: Written, stored: Written | None) -> Written:
    """A text as an editor tells it, with the line endings and the mark that editors keep aside."""
    if not stored:
        return text
    plain = "\n" in stored.text.replace("\r\n", "")
    if "\r\n" in stored.text and "\r\n" not in text.text and not plain:
        text = Written(text=text.text.replace("\n", "\r\n"))
    return Written(text=text.text, marked=text.marked or stored.marked)


def clean(text: str) -> str:
    """Fit to be sent: bytes that are no text become marks."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode(errors="surrogateescape").decode(errors="replace")
    return text


def kind_of_data(head: bytes) -> str | None:
    """What a file is that is no text, by how it begins; None for text."""
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return "binary" if b"\0" in head[:SNIFFED] else None


class Seen:
    """Which files the model knows, as they were when it saw them last."""

    def __init__(self) -> None:
        self._digests: dict[Path, bytes] = {}

    def note(self, path: Path, text: Written) -> None:
        self._digests[path] = _digest(text)

    def knows(self, path: Path) -> bool:
        return path in self._digests

    def is_current(self, path: Path, text: Written) -> bool:
        return self._digests.get(path) == _digest(text)


def _digest(text: Written) -> bytes:
    return blake2b(text.encoded(), digest_size=16).digest()
