"""What is in these objects? Many in one process, whatever their names are."""

from collections.abc import Mapping, Sequence

from goent.git.command import Git


async def contents(
    git: Git, names: Sequence[bytes], env: Mapping[str, str] | None = None
) -> list[bytes]:
    """Of files, by id or as `tree:path`; empty for what is not there, or is no file."""
    if not names:
        return []
    asked = b"".join(name + b"\0" for name in names)
    output = (await git.do("cat-file", "--batch", "-z", stdin=asked, env=env)).output
    found: list[bytes] = []
    at = 0
    for name in names:
        missing = name + b" missing\n"
        if output.startswith(missing, at):
            found.append(b"")
            at += len(missing)
            continue
        end = output.index(b"\n", at)
        _, kind, size = output[at:end].split(b" ")
        content = output[end + 1 : end + 1 + int(size)]
        found.append(content if kind == b"blob" else b"")
        at = end + 1 + int(size) + 1
    return found
