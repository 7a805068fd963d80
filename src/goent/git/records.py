"""What is written down beside a workspace, so that it can be found and judged without its worker?"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from goent.domain.types import Value
from goent.domain.workspaces import FOLDERS, Workspace

ENDING = ".json"


class Record(Value, frozen=True, kw_only=True):
    """`git_dir` is the workspace's own, `carried` what was put into it and is never committed.

    `inner` are its submodules, outer ones first. Before it is `ready`, nobody has worked there.
    """

    worker: str
    group: str
    workspace: Workspace
    git_dir: str = ""
    carried: tuple[str, ...] = ()
    inner: tuple["Record", ...] = ()
    ready: bool = False


def record_path(workspace_path: Path) -> Path:
    return workspace_path.with_name(workspace_path.name + ENDING)


def write(record: Record) -> None:
    """Whole or not at all."""
    path = record_path(Path(record.workspace.path))
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(record))
        os.replace(temporary, path)  # noqa: PTH105 (both are there)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read(workspace_path: Path) -> Record | None:
    """None if there is none, or none that can be read."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(record_path(workspace_path).read_bytes(), type=Record)
    return None


def forget(workspace_path: Path) -> None:
    record_path(workspace_path).unlink(missing_ok=True)
    with suppress(OSError):  # others are in it
        workspace_path.parent.rmdir()


def every(root: Path) -> Iterator[Record]:
    """All workspaces below the root."""
    for folder in FOLDERS.values():
        for path in sorted((root / folder).glob(f"*/*{ENDING}")):
            if record := read(path.with_name(path.name.removesuffix(ENDING))):
                yield record


def find(root: Path, worker: str) -> Record | None:
    return next((record for record in every(root) if record.worker == worker), None)
