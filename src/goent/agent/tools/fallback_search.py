"""Searches a folder without ripgrep: a separate program on the standard library alone.

A process, because an expression can keep Python's `re` busy forever, and only a process can be
ended then. It takes a `FileSearch` of `search_tools` as JSON.
"""

import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from goent.agent.tools.path_patterns import FolderIgnores, folder_ignores, name_matcher

SNIFFED_BYTES = 65_536
MAX_FILE_BYTES = 32_000_000  # of files that are searched; larger ones are skipped
MAX_LINE_CHARS = 2000


class SearchRequest(TypedDict):
    """`names` are patterns of file names, `mode` is files, content, count or list."""

    mode: str
    pattern: str
    ignore_case: bool
    context: int
    names: list[str]
    hidden: bool
    without: list[str]


def files_below(folder: str, asked: SearchRequest) -> Iterator[str]:
    """Relative paths in order; links are not followed."""
    names = [name_matcher(name) for name in asked["names"]]
    stack = [_entries(folder, "", folder_ignores(folder))]
    while stack:  # no recursion: folders may be nested deeper than Python's stack
        for entry, path, ignoring in stack[-1]:
            name = entry.name
            if name == ".git" or (name.startswith(".") and not asked["hidden"]):
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            if path in asked["without"] or ignoring.is_ignored(name, folder=is_folder):
                continue
            if is_folder:
                stack.append(_entries(entry.path, f"{path}/", FolderIgnores(entry.path, ignoring)))
                break
            is_named = not names or any(match(name) for match in names)
            if is_named and entry.is_file(follow_symlinks=False):
                yield path
        else:
            stack.pop()


def _entries(
    folder: str, prefix: str, ignoring: FolderIgnores
) -> Iterator[tuple[os.DirEntry[str], str, FolderIgnores]]:
    try:
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    except OSError:
        return
    for entry in entries:
        yield entry, prefix + entry.name, ignoring


def read_lines(path: str) -> list[str] | None:
    """The lines of a text file; None for anything else."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    with open(file, "rb") as stream:  # noqa: PTH123 (a descriptor, not a path)
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_FILE_BYTES:
            return None
        try:
            data = stream.read(MAX_FILE_BYTES)
        except OSError:
            return None
    if b"\0" in data[:SNIFFED_BYTES]:
        return None
    lines = data.decode(errors="replace").split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.rstrip("\r") for line in lines]


def content_lines(path: str, lines: list[str], found: list[int], context: int) -> Iterator[str]:
    """The output of ripgrep with `--null --no-heading --line-number`."""
    hits = set(found)
    near = {number for hit in found for number in range(hit - context, hit + context + 1)}
    before: int | None = None
    for number in sorted(near & set(range(len(lines)))):
        if before is not None and context and number != before + 1:
            yield "--\n"
        before = number
        mark = ":" if number in hits else "-"
        yield f"{path}\0{number + 1}{mark}{lines[number][:MAX_LINE_CHARS]}\n"


def search_files(asked: SearchRequest, start: str) -> Iterator[str]:
    paths = iter([start]) if start else files_below(str(Path.cwd()), asked)
    if asked["mode"] == "list":
        yield from (f"{path}\0" for path in paths)
        return
    sought = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    first = True
    for path in paths:
        lines = read_lines(path)
        found = [n for n, line in enumerate(lines) if sought.search(line)] if lines else []
        if not (lines and found):
            continue
        if asked["mode"] == "files":
            yield f"{path}\0"
        elif asked["mode"] == "count":
            yield f"{path}\0{len(found)}\n"
        else:
            if asked["context"] and not first:
                yield "--\n"
            yield from content_lines(path, lines, found, asked["context"])
        first = False


def main() -> None:
    asked: SearchRequest = json.loads(sys.argv[1])
    start = sys.argv[2]
    output = sys.stdout.buffer
    try:
        for piece in search_files(asked, start):
            output.write(piece.encode(errors="surrogateescape"))
            output.flush()
    except re.error as error:
        sys.stderr.write(f"regex parse error: {error}\n")
        sys.exit(2)
    except BrokenPipeError:
        os._exit(0)
