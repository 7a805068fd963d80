"""Finds out what changed in a shared folder between two moments.

In a checkout git compares, with a private copy of its index from the first moment. So a commit, a
switched branch or a staged file in between hides nothing, and the user's index is neither used nor
written. Only files that the index does not cover are compared one by one: those that were changed
before, and untracked ones. Ignored files are not seen. Elsewhere the folder is walked, within limits.
"""

import os
import shutil
import stat
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Final

import anyio

from goent.domain.errors import GoentError
from goent.domain.types import Value
from goent.domain.workspace import ObservedChange, ObservedChanges
from goent.git.git_command import Git, GitFailed, readable_path
from goent.git.repository_config import RepositoryHome, homes_around
from goent.git.scratch_space import make_scratch_folder, remove_folder
from goent.git.tree_snapshot import SUBMODULE_MODE, may_have_links
from goent.proc.concurrency import run_both
from goent.system.plain_files import read_plain

OBSERVED: Final = "observed"  # name prefix of the folders for private indexes
GIT_LIMIT: Final = 10.0  # seconds for one git process
WALK_LIMIT: Final = 1.0  # seconds of CPU time to walk a folder without git
WALK_WAIT: Final = 4.0  # seconds that it may take in all
CLOCK_LAG: Final = 0.1  # seconds that a file system's clock may lag
MAX_FILES: Final = 50_000  # files that are compared one by one
MAX_HASHED: Final = 200  # of those, files that are compared by content
MAX_HASHED_BYTES: Final = 64 * 1024  # bytes of such a file
MAX_COUNTED: Final = 500  # files whose lines are counted
MAX_COUNTED_BYTES: Final = 1024 * 1024  # bytes of such a file
MAX_REPORTED: Final = 1000
MAX_REPOSITORIES: Final = 20  # inside the folder
# Without waiting for locks or writing to the repository.
PLAIN: Final = (
    *("-c", "core.untrackedCache=false", "-c", "core.safecrlf=false"),
    *("-c", "diff.autoRefreshIndex=true"),  # else a rewritten but equal file would differ
)
DIRTY: Final = ("diff-files", "-z", "--raw", "--no-renames", "--ignore-submodules=all")
UNTRACKED: Final = ("ls-files", "-z", "--others", "--exclude-standard")
COUNTED: Final = (
    *("diff", "-z", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"),
    "--ignore-submodules=all",
)
OWN_FOLDER: Final = b".goent"  # not work
# Folders whose untracked files are not work, whether or not git ignores them.
PASSED_OVER: Final = frozenset(
    {
        *(b".git", b".hg", b".svn", OWN_FOLDER, b"node_modules", b"__pycache__", b".venv", b"venv"),
        *(b".tox", b".mypy_cache", b".pytest_cache", b".ruff_cache"),
    }
)

Stamp = tuple[int, int, int, int, int]  # mode, size, mtime, ctime, inode
KnownFiles = dict[
    bytes, tuple[Stamp, bytes]
]  # by absolute path: with a hash of the content, or b""


class GitListing(Value, frozen=True, kw_only=True):
    """git's listing, as absolute paths; `inner` are folders with their own repositories."""

    dirty: tuple[bytes, ...]
    untracked: tuple[bytes, ...]
    inner: tuple[bytes, ...]


class GitObserver:
    """Observes folders. Private indexes lie below `root`, in go-ent's own state."""

    def __init__(self, root: Path, git: Git) -> None:
        self._root = root
        self._git = git

    async def observe(self, cwd: Path, project: Path) -> "GitFolderObservation":
        """Record a folder's state. What cannot be seen is reported with the changes."""
        folder = await anyio.to_thread.run_sync(make_scratch_folder, self._root, OBSERVED)
        seen = GitFolderObservation(self._git, folder)
        try:
            for home, scope in await anyio.to_thread.run_sync(_places, cwd, project):
                await seen.add(home, scope)
        except BaseException:
            await seen.close()
            raise
        return seen


class GitFolderObservation:
    """The earlier state of a folder, including the repositories inside it."""

    def __init__(self, git: Git, folder: Path) -> None:
        self._git = git
        self._folder = folder  # of private indexes
        self._parts: dict[bytes, _ObservedCheckout | _ObservedFolder] = {}
        self._unseen: dict[str, None] = {}

    async def add(self, home: RepositoryHome | None, scope: Path) -> None:
        """Record a place as it is now, once."""
        ahead = deque([(home, scope)])
        while ahead:
            home, scope = ahead.popleft()
            place = os.fsencode(scope)
            if place in self._parts:
                continue
            if len(self._parts) > MAX_REPOSITORIES:
                self._unseen[f"more than {MAX_REPOSITORIES} repositories inside"] = None
                return
            try:
                inner = await self._add(home, scope)
            except (GoentError, OSError) as error:
                self._unseen[f"{str(scope)!r}: {error}"] = None
                continue
            for each in inner:
                path = Path(os.fsdecode(each))
                found = await anyio.to_thread.run_sync(_home_at, path)
                if found:
                    ahead.append((found, path))

    async def _add(self, home: RepositoryHome | None, scope: Path) -> Sequence[bytes]:
        place = os.fsencode(scope)
        if home is None:
            walked = await anyio.to_thread.run_sync(_ObservedFolder, place)
            self._parts[place] = walked
            return walked.inner
        index = self._folder / f"index-{len(self._parts)}"
        part = _ObservedCheckout(self._git, home, scope, index)
        await part.look()
        self._parts[place] = part
        return part.inner

    async def changes(self) -> ObservedChanges:
        found: dict[str, ObservedChange] = {}
        unseen = dict(self._unseen)
        for place, part in self._parts.items():
            try:
                for each in await part.changes():
                    found.setdefault(each.path, each)
            except (GoentError, OSError) as error:
                unseen[f"{readable_path(place)!r}: {error}"] = None
            if part.unseen:
                unseen[part.unseen] = None
        told = sorted(found.values(), key=lambda each: each.path)
        return ObservedChanges(
            files=tuple(told[:MAX_REPORTED]),
            more=max(0, len(told) - MAX_REPORTED),
            unseen="; ".join(unseen),
        )

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(remove_folder, self._folder)


class _ObservedCheckout:
    """The earlier state of a checkout, or a folder of one, by git."""

    def __init__(self, git: Git, home: RepositoryHome, scope: Path, index: Path) -> None:
        assert home.top, "a bare repository has no files"
        self.unseen = ""
        self.inner: tuple[bytes, ...] = ()
        self._top = os.fsencode(home.top)
        self._began = 0.0
        self._git = git.at(home.top)
        self._git_dir = home.git_dir
        self._exclude = os.fsencode(home.common / "info" / "exclude")
        self._index = index
        self._has_index = False
        self._known: KnownFiles = {}
        inside = scope.relative_to(home.top).as_posix()
        self._spec = ("--", f":(top,literal){inside}") if inside != "." else ()
        self._env = {
            "GIT_DIR": str(home.git_dir),
            "GIT_WORK_TREE": str(home.top),
            "GIT_INDEX_FILE": str(index),
            "GIT_NO_LAZY_FETCH": "1",  # no network
        }

    async def look(self) -> None:
        self._began = time.time()
        await anyio.to_thread.run_sync(self._copy_index)
        found = await self._listed()
        self.inner = found.inner
        paths = (*found.dirty, *found.untracked)
        if len(paths) > MAX_FILES:
            self.unseen = f"only {MAX_FILES} of the changed and untracked files of {self._name!r} were compared"
        self._known = await anyio.to_thread.run_sync(_known_files, paths[:MAX_FILES])

    @property
    def _name(self) -> str:
        return readable_path(self._top)

    def _copy_index(self) -> None:
        with suppress(FileNotFoundError):  # nothing was ever added
            # With its time stamp: git trusts an index only for files that are older than it.
            shutil.copy2(self._git_dir / "index", self._index)
            self._has_index = True

    async def _listed(self) -> GitListing:
        """The changed and untracked files, and the repositories inside."""
        changed, untracked = await run_both(
            partial(self._ask, *DIRTY, *self._spec), partial(self._ask, *UNTRACKED, *self._spec)
        )
        dirty = changed.split(b"\0")[1::2]
        others = untracked.split(b"\0")
        inner = [self._whole(path.rstrip(b"/")) for path in others if path.endswith(b"/")]
        if await anyio.to_thread.run_sync(may_have_links, self._index):
            inner += await self._links()
        return GitListing(
            dirty=tuple(dict.fromkeys(self._whole(path) for path in dirty if _is_reported(path))),
            untracked=tuple(self._whole(path) for path in others if _is_work(path)),
            inner=tuple(inner),
        )

    async def _links(self) -> list[bytes]:
        listed = await self._ask("ls-files", "--stage", "-z", *self._spec)
        entries = (line.partition(b"\t") for line in listed.split(b"\0"))
        return [self._whole(path) for about, _, path in entries if about.startswith(SUBMODULE_MODE)]

    def _whole(self, path: bytes) -> bytes:
        return self._top + b"/" + path

    async def _ask(self, *arguments: str | bytes) -> bytes:
        answer = await self._git.run(*PLAIN, *arguments, env=self._env, timeout=GIT_LIMIT)
        if answer.exit:
            raise GitFailed(answer.errors[-300:].replace(str(self._index), "its index"))
        return answer.output

    async def changes(self) -> Sequence[ObservedChange]:
        if self._has_index and not self._index.exists():  # without one, all files would be new
            raise GitFailed(f"the copy of its index is gone from {str(self._index)!r}")
        found = await self._listed()
        new_inside = set(found.inner) - set(self.inner)
        suspects = dict.fromkeys((*self._known, *found.dirty, *found.untracked, *new_inside))
        now = await anyio.to_thread.run_sync(_known_files, list(suspects)[: 2 * MAX_FILES])
        dirty = frozenset(found.dirty)
        different = {
            path: now.get(path)
            for path in suspects
            if (path in self._known or path not in dirty)
            and _differs(self._known.get(path), now.get(path))
        }
        # These were equal to the index, so git decides whether they differ now.
        clean = [path for path in found.dirty if path not in self._known]
        counts = await self._counts(clean, now)
        told = [*different, *(path for path in clean if path in counts)]
        return await anyio.to_thread.run_sync(
            self._told, told, now, counts, frozenset(found.untracked)
        )

    async def _counts(
        self, clean: Sequence[bytes], now: KnownFiles
    ) -> Mapping[bytes, tuple[int | None, int | None]]:
        """Changed lines of the files that differ; None for files that are not counted."""
        counted = [path for path in clean if _is_countable(now.get(path))][:MAX_COUNTED]
        found: dict[bytes, tuple[int | None, int | None]] = dict.fromkeys(clean, (None, None))
        for path in counted:
            del found[path]
        if not counted:
            return found
        paths = [b":(top,literal)" + path[len(self._top) + 1 :] for path in counted]
        for line in (await self._ask(*COUNTED, "--", *paths)).split(b"\0"):
            added, _, rest = line.partition(b"\t")
            removed, _, path = rest.partition(b"\t")
            if path:
                found[self._whole(path)] = (_number(added), _number(removed))
        return found

    def _told(
        self,
        paths: Sequence[bytes],
        now: KnownFiles,
        counts: Mapping[bytes, tuple[int | None, int | None]],
        untracked: frozenset[bytes],
    ) -> Sequence[ObservedChange]:
        found: list[ObservedChange] = []
        ignores = (self._exclude, *(path for path in paths if path.endswith(b"/.gitignore")))
        ignores_changed = any(changed_at(path, _stamp(path), self._began)[1] for path in ignores)
        for path in paths:
            state = now.get(path)
            at, exact = changed_at(path, state[0] if state else None, self._began)
            is_new = path in untracked and path not in self._known
            if is_new and (at is None or (ignores_changed and not exact)):
                continue  # it existed before, and was ignored
            added, removed = counts.get(path, (None, None))
            if is_new and len(found) < MAX_COUNTED:
                added, removed = _lines(path, state), 0
            found.append(
                ObservedChange(
                    path=readable_path(path), at=at, exact=exact, added=added, removed=removed
                )
            )
        return found


class _ObservedFolder:
    """The earlier state of a folder without git, by a breadth-first walk."""

    def __init__(self, top: bytes) -> None:
        self.unseen = ""
        self._top = top
        self._began = time.time()
        self._stamps, self.inner, self._whole = _walk(top)

    async def changes(self) -> Sequence[ObservedChange]:
        return await anyio.to_thread.run_sync(self._changes)

    def _changes(self) -> Sequence[ObservedChange]:
        now, _, whole = _walk(self._top)
        if not (whole and self._whole):
            self.unseen = f"only {min(len(now), len(self._stamps))} files of {readable_path(self._top)!r} were compared"
        return list(self._compared(now, whole=whole))

    def _compared(self, now: Mapping[bytes, Stamp], *, whole: bool) -> Iterator[ObservedChange]:
        known = self._stamps
        different = [path for path, stamp in now.items() if known.get(path) != stamp]
        for path in (*different, *(known.keys() - now.keys())):
            before, after = known.get(path), now.get(path)
            at, exact = changed_at(path, after, self._began)
            is_new = before is None
            # If a walk was incomplete, a file's absence from it means nothing.
            if (is_new and not self._whole and not exact) or (after is None and not whole):
                continue
            yield ObservedChange(
                path=readable_path(path),
                at=at,
                exact=exact,
                added=_lines(path, (after, b"")) if is_new and after else None,
                removed=0 if is_new else None,
            )


def _places(cwd: Path, project: Path) -> list[tuple[RepositoryHome | None, Path]]:
    """The places to observe: the project, and the directory's checkout if it is another one."""
    cwd, project = cwd.resolve(), project.resolve()
    own = _around(cwd)
    around = own.top if own and own.top else cwd
    scope = project if cwd.is_relative_to(project) else around
    outer = _around(scope)
    found: list[tuple[RepositoryHome | None, Path]] = [(outer, scope)]
    if own and own.top and own.top != scope and own.top.is_relative_to(scope):
        found.append((own, own.top))
    return found


def _around(folder: Path) -> RepositoryHome | None:
    return next((home for home in homes_around(folder) if home.top), None)


def _home_at(folder: Path) -> RepositoryHome | None:
    """The repository whose checkout has exactly this top."""
    found = _around(folder) if os.path.lexists(folder / ".git") else None
    return found if found and found.top == folder.resolve() else None


def _is_work(untracked: bytes) -> bool:
    *folders, name = untracked.split(b"/")
    return bool(name) and PASSED_OVER.isdisjoint(folders)


def _is_reported(path: bytes) -> bool:
    return bool(path) and OWN_FOLDER not in path.split(b"/")


def _known_files(paths: Sequence[bytes]) -> KnownFiles:
    """The existing files; the first small ones with a hash of their content."""
    found: KnownFiles = {}
    hashed = 0
    for path in paths:
        state = _stamp(path)
        if state is None:
            continue
        content = b""
        if hashed < MAX_HASHED and (content := _hash(path, state)):
            hashed += 1
        found[path] = (state, content)
    return found


def _stamp(path: bytes) -> Stamp | None:
    try:
        found = os.lstat(path)
    except (OSError, ValueError):
        return None
    return _stamp_of(found)


def _stamp_of(found: os.stat_result) -> Stamp:
    return found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def _hash(path: bytes, state: Stamp) -> bytes:
    if not stat.S_ISREG(state[0]) or state[1] > MAX_HASHED_BYTES:
        return b""
    with suppress(OSError):
        return blake2b(read_plain(os.fsdecode(path), MAX_HASHED_BYTES), digest_size=16).digest()
    return b""


def _differs(before: tuple[Stamp, bytes] | None, now: tuple[Stamp, bytes] | None) -> bool:
    if before is None or now is None:
        return before is not now
    if before[0] == now[0]:
        return False
    same = before[1] and before[1] == now[1] and before[0][0] == now[0][0]
    return not same


def _is_countable(state: tuple[Stamp, bytes] | None) -> bool:
    return state is None or not stat.S_ISREG(state[0][0]) or state[0][1] <= MAX_COUNTED_BYTES


def _number(digits: bytes) -> int | None:
    return int(digits) if digits.isdigit() else None


def _lines(path: bytes, state: tuple[Stamp, bytes] | None) -> int | None:
    """The lines of a new file; None for a large or binary one."""
    if state is None or not stat.S_ISREG(state[0][0]) or state[0][1] > MAX_COUNTED_BYTES:
        return None
    try:
        content = read_plain(os.fsdecode(path), MAX_COUNTED_BYTES)
    except OSError:
        return None
    if b"\0" in content:
        return None
    return content.count(b"\n") + (not content.endswith(b"\n") and bool(content))


def changed_at(path: bytes, state: Stamp | None, began: float) -> tuple[float | None, bool]:
    """The time of the change, and whether it is the file's own time.

    A file that was removed, or moved with its folder, has no time of its own: the nearest changed
    folder gives the time.
    """
    if state and state[3] / 1e9 >= began - CLOCK_LAG:
        return state[3] / 1e9, True
    folder = os.path.dirname(path)  # noqa: PTH120 (a name need not be text)
    while len(folder) > 1:
        found = _stamp(folder)
        if found and (at := max(found[2], found[3]) / 1e9) >= began - CLOCK_LAG:
            return at, False
        folder = os.path.dirname(folder)  # noqa: PTH120 (the same)
    return None, False


def _walk(top: bytes) -> tuple[dict[bytes, Stamp], tuple[bytes, ...], bool]:
    """The files, the repositories among the folders, and whether the walk is complete."""
    stamps: dict[bytes, Stamp] = {}
    inner: list[bytes] = []
    until, work = time.monotonic() + WALK_WAIT, time.thread_time() + WALK_LIMIT
    ahead = deque([top])
    while ahead:
        folder = ahead.popleft()
        if folder != top and os.path.lexists(folder + b"/.git"):
            inner.append(folder)
            continue
        _list(folder, stamps, ahead)
        if len(stamps) >= MAX_FILES or time.monotonic() > until or time.thread_time() > work:
            return stamps, tuple(inner), not ahead
    return stamps, tuple(inner), True


def _list(folder: bytes, stamps: dict[bytes, Stamp], ahead: deque[bytes]) -> None:
    """Add its files and folders. Called tens of thousands of times, so it has to be fast."""
    folders: list[bytes] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in PASSED_OVER:
                        folders.append(entry.path)
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                stamps[entry.path] = _stamp_of(found)
    except OSError:  # gone meanwhile, or not readable
        pass
    ahead.extend(sorted(folders))
