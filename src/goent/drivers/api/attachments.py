"""What does a model see of the files that come with a prompt, when it cannot open them itself?"""

import base64
import mimetypes
from collections.abc import Sequence
from pathlib import Path

import anyio

from goent.domain.errors import RequestError
from goent.domain.types import Prompt
from goent.llm.talk import Image, Part, Text
from goent.plain_files import NotPlain, read_beginning

MOST_FILE = 2 * 1024 * 1024
MOST_IMAGE = 5 * 1024 * 1024  # what both vendors take
IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


async def attached(prompt: Prompt) -> tuple[Part, ...]:
    """The files' contents, each below its name, and then the prompt."""
    parts = await anyio.to_thread.run_sync(_read_all, prompt.files)
    return (*parts, Text(text=prompt.text))


def _read_all(files: Sequence[str]) -> list[Part]:
    return [_read(Path(name)) for name in files]


def _read(path: Path) -> Part:
    kind = mimetypes.guess_type(path.name)[0] or ""
    most = MOST_IMAGE if kind in IMAGES else MOST_FILE
    try:
        if path.is_dir():
            raise RequestError(f"{str(path)!r} is a directory: a worker by api is given files")
        content = read_beginning(path, most + 1)
    except NotPlain as error:
        raise RequestError(str(error)) from None
    except OSError as error:
        raise RequestError(f"{str(path)!r} cannot be read: {error.strerror}") from error
    if len(content) > most:
        raise RequestError(f"{str(path)!r} is larger than the {most} bytes that a prompt can carry")
    if kind in IMAGES:
        return Image(media_type=kind, data=base64.b64encode(content).decode())
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise RequestError(
            f"{str(path)!r} is neither text nor an image: a model cannot read it"
        ) from None
    return Text(text=f'<file path="{path}">\n{text}\n</file>')
