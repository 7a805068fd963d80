"""Names workspaces on disk and in git, and keeps a record beside each."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from goent.domain.errors import RequestError
from goent.domain.types import Value
from goent.domain.workspace import WORKSPACE_FOLDERS, Workspace, WorkspaceKind

PRIVATE: Final = 0o700
SOLO_GROUP: Final = "solo"  # the group of workers that are in no swarm
MERGED_BRANCH: Final = "merged"  # the name of a group's merged work
SAFE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
RECORD_SUFFIX = ".json"


def worker_branch(group: str, worker: str) -> str:
    """`go-ent/<group>/<worker>`. Raises for a name that git or the disk would not take."""
    for name in (group, worker):
        if not SAFE_NAME.fullmatch(name) or name.endswith(".lock"):
            raise RequestError(
                f"{name!r} cannot be part of a branch's name: use letters, digits, '-' and '_'"
            )
    if worker == MERGED_BRANCH:
        raise RequestError(f"a worker cannot be called {worker!r}: that is the merged work's name")
    return f"go-ent/{group}/{worker}"


def workspace_folder(root: Path, kind: WorkspaceKind, group: str, worker: str) -> Path:
    return root / WORKSPACE_FOLDERS[kind] / group / worker


def make_private(folder: Path, root: Path) -> None:
    """Make the folder and its parents up to the root, private to the user."""
    missing = [each for each in (folder, *folder.parents) if each.is_relative_to(root)]
    for each in reversed(missing):
        each.mkdir(PRIVATE, parents=True, exist_ok=True)


def make_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)


def check_free(path: Path) -> None:
    if path.exists():
        raise RequestError(f"there is a workspace {str(path)!r} already: `go-ent gc` lists it")


def is_own_folder(path: str) -> bool:
    """Whether it is a real folder, not a link."""
    return Path(path).is_dir() and not Path(path).is_symlink()


class WorkspaceRecord(Value, frozen=True, kw_only=True):
    """Describes a workspace on disk. `carried` are copied files that are never committed.

    `git_dir` is the workspace's own, `inner` are its submodules, outer ones first. Until it is
    `ready`, nobody has worked there.
    """

    worker: str
    group: str
    workspace: Workspace
    git_dir: str = ""
    carried: tuple[str, ...] = ()
    inner: tuple["WorkspaceRecord", ...] = ()
    ready: bool = False


def record_path(workspace_path: Path) -> Path:
    return workspace_path.with_name(workspace_path.name + RECORD_SUFFIX)


def write_record(record: WorkspaceRecord) -> None:
    """Write the record atomically."""
    path = record_path(Path(record.workspace.path))
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(msgspec.json.encode(record))
        os.replace(temporary, path)  # noqa: PTH105 (both are there)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_record(workspace_path: Path) -> WorkspaceRecord | None:
    """None if it is missing or unreadable."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(record_path(workspace_path).read_bytes(), type=WorkspaceRecord)
    return None


def forget_record(workspace_path: Path) -> None:
    record_path(workspace_path).unlink(missing_ok=True)
    with suppress(OSError):  # others are in it
        workspace_path.parent.rmdir()


def all_records(root: Path) -> Iterator[WorkspaceRecord]:
    """All workspaces below the root."""
    for folder in WORKSPACE_FOLDERS.values():
        for path in sorted((root / folder).glob(f"*/*{RECORD_SUFFIX}")):
            if record := read_record(path.with_name(path.name.removesuffix(RECORD_SUFFIX))):
                yield record


def find_record(root: Path, worker: str) -> WorkspaceRecord | None:
    return next((record for record in all_records(root) if record.worker == worker), None)
