"""Finds out which files changed during a turn, and which worker may have changed them.

Tools report their edits; shell commands do not. So files are compared before and after a turn:
 - guarded files, which other programs obey (hooks, settings), in the worker's directory, in the
   folders above it up to the top of its checkout, and in git's own folder. Deeper ones are found
   among the files of the worker's result;
 - the files of a shared folder. `change_attribution` decides whose each change is, and two workers
   that change one file at the same time both get a notice.
"""

import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePath
from typing import Final

import anyio
from msgspec.structs import replace

from goent.domain.errors import GoentError
from goent.domain.events import (
    DriverEvent,
    FilesChanged,
    Noticed,
    PermissionAnswered,
    PermissionAsked,
    PermissionWithdrawn,
    ToolCall,
)
from goent.domain.ports import WorkerSpec
from goent.domain.types import (
    ENDED_STATES,
    ONE_TURN_METHODS,
    AlsoChanged,
    FileChange,
    GuardedChange,
    Overlap,
    OverlapKind,
    Value,
)
from goent.domain.workspace import FolderObserver, Observation, ObservedChange, ObservedChanges
from goent.permissions.permission_rules import guard_reason
from goent.system.plain_files import read_plain
from goent.workers.change_attribution import (
    CALL_SLACK_S,
    EDIT_TOOLS,
    READ_ONLY_TOOLS,
    CallSpan,
    EditLines,
    TurnActivity,
    edit_lines,
    is_edit_of,
    lines_of,
    possible_authors,
)
from goent.workers.feed import Feed
from goent.workers.views import WorkerView

log = logging.getLogger(__name__)

MAX_READ = 2000  # files that are read; the others are compared by size and times
MAX_FILES = 10_000  # per place, so that none can hide another
MAX_DEPTH = 6
SMALL_FILE = 256 * 1024  # bytes; larger files are compared by size and times
# The parts of git's folder that make it run programs; git itself writes the rest all the time.
_GIT_FILES = (
    *("config", "config.worktree", "hooks", "info/attributes", "info/exclude"),
    *("commondir", "gitdir"),  # where git looks next
)
_SUBMODULE_FILES: Final = tuple(
    f"modules/{deep}{name}" for deep in ("*/", "*/*/") for name in ("config", "hooks")
)
_SKIPPED_FOLDERS = frozenset({"node_modules", "logs", "objects", "evals"})  # written all the time
PROJECT_MARKERS = (".git", ".goent")  # at a project's top
OBSERVE_TIMEOUT_S = 10.0  # seconds that a turn waits for a comparison, before and after it
OBSERVE_INTERVAL_FACTOR = 10  # pause within a turn, in multiples of the last comparison's time
CLOCK_TOLERANCE_S = 0.01  # seconds that a file system's clock may lag
LARGEST_FILE = 1024 * 1024  # bytes of a file in which lines are searched
NOT_OBSERVED = "the files were not examined before the turn"
TOO_LATE = f"comparing the files took longer than {OBSERVE_TIMEOUT_S:g} s"
BASELINE_LOST = "go-ent stopped during the turn, so its changes cannot be determined"
StartTask = Callable[[Callable[[], Coroutine[None, None, None]]], None]


def shares_directory(views: Iterable[WorkerView], worker: str, since: float) -> bool:
    """Whether another worker that may change files has worked there since then."""
    known = {view.id: view for view in views}
    own = known.get(worker)
    if own is None:
        return False
    return any(
        _is_nested(Path(own.spawned.cwd), Path(view.spawned.cwd))
        for view in known.values()
        if view.id != worker and may_write(view) and _at_work(view, since)
    )


def may_write(view: WorkerView) -> bool:
    """Whether it may change files where it works."""
    return view.spawned.method != "api" and view.spawned.permissions != "readonly"


def _at_work(view: WorkerView, since: float) -> bool:
    return (view.state not in ENDED_STATES and view.open) or (view.ended_at or 0.0) >= since


def _is_nested(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)


class FileFingerprint(Value, frozen=True, kw_only=True):
    """A file's `state` from the file system, and a hash of its `content`, if it was read."""

    state: str
    content: str = ""

    def differs(self, other: "FileFingerprint | None") -> bool:
        if other is None:
            return True
        if self.content and other.content:
            return self.content != other.content
        return self.state != other.state


Fingerprints = Mapping[Path, FileFingerprint]


def fingerprints(cwd: Path, origin: Path | None = None) -> Fingerprints:
    """The guarded files around `cwd`, and around `origin`, the user's folder that it was made from."""
    found: dict[Path, FileFingerprint] = {}
    folders = dict.fromkeys([*_up_to_top(cwd), *(_up_to_top(origin) if origin else ())])
    for place in _guarded_places(folders):
        for file in islice(_files(place, MAX_DEPTH), MAX_FILES):
            if state := _fingerprint(file, read=len(found) < MAX_READ):
                found[file] = state
    return found


def guarded_file_changes(
    before: Fingerprints, after: Fingerprints, cwd: Path
) -> tuple[GuardedChange, ...]:
    """The guarded files that appeared, vanished or differ, `MAX_FILES` per place at most."""
    paths = sorted(path for path in before.keys() | after if _is_changed(path, before, after))
    return tuple(
        GuardedChange(path=_shown_path(path, cwd), reason=_guard_reason_of(path, cwd))
        for path in paths
    )


def _guarded_places(folders: Iterable[Path]) -> Iterator[Path]:
    """The files and folders to compare."""
    for folder in folders:
        for entry in _entries(folder):
            if entry.name == ".git":
                yield from _git_places(Path(entry.path))
            elif guard_reason(PurePath(entry.name)):
                yield Path(entry.path)
            elif entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                inside = (PurePath(entry.name, each.name) for each in _entries(Path(entry.path)))
                yield from (folder / each for each in inside if guard_reason(each))


def _up_to_top(cwd: Path) -> Iterator[Path]:
    folders = (cwd, *cwd.parents)
    marked = (folder for name in PROJECT_MARKERS for folder in folders if (folder / name).exists())
    top = next(marked, cwd)
    for folder in folders:
        yield folder
        if folder == top:
            return


def _git_places(git: Path) -> Iterator[Path]:
    """Git's folder; for a worktree, the one that its file names, and the repository's."""
    yield from _git_folder_places(git)
    if git.is_dir():
        return
    yield git
    own = _path_named_in(git, "gitdir:")
    if own is None:
        return
    yield from _git_folder_places(own)
    if common := _path_named_in(own / "commondir", ""):
        yield from _git_folder_places(common)


def _git_folder_places(git: Path) -> Iterator[Path]:
    yield from (git / name for name in _GIT_FILES)
    for pattern in _SUBMODULE_FILES:
        yield from git.glob(pattern)


def _path_named_in(file: Path, begin: str) -> Path | None:
    try:
        text = os.fsdecode(read_plain(file, SMALL_FILE)).strip()
    except OSError:
        return None
    return Path(os.path.normpath(file.parent / text.removeprefix(begin).strip()))


def _files(place: Path, depth: int) -> Iterator[Path]:
    """The files of a place. Links are followed, as the programs that obey the files do."""
    if place.is_symlink() or not place.is_dir():
        yield place
    if not place.is_dir():
        return
    for entry in _entries(place):
        if depth and entry.name not in _SKIPPED_FOLDERS:
            yield from _files(Path(entry.path), depth - 1)


def _entries(folder: Path) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []  # gone meanwhile, or not readable


def _is_changed(path: Path, before: Fingerprints, after: Fingerprints) -> bool:
    was, now = before.get(path), after.get(path)
    return was.differs(now) if was else now is not None


def _fingerprint(file: Path, *, read: bool) -> FileFingerprint | None:
    """None if there is no such file. For a link, its target counts as well."""
    try:
        link = f"link {file.readlink()} " if file.is_symlink() else ""
        if link and not file.is_file():  # a folder's files are compared separately
            return FileFingerprint(state=link, content=link)
        state = file.stat()
    except OSError:
        return None
    times = (state.st_mode, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
    content = ""
    if read and state.st_size <= SMALL_FILE:
        with suppress(OSError):
            digest = hashlib.sha256(read_plain(file, SMALL_FILE)).hexdigest()
            content = f"{link}{stat.S_IMODE(state.st_mode)} {digest}"
    return FileFingerprint(state=f"{link}{times}", content=content)


def _guard_reason_of(path: Path, cwd: Path) -> str:
    """Judged by its path below the worker's directory, or below the nearest folder above that."""
    above = (folder for folder in (cwd, *cwd.parents) if path.is_relative_to(folder))
    named = path.relative_to(next(above, path.parent))
    return guard_reason(named) or guard_reason(path) or guard_reason(PurePath(".git")) or ""


def _shown_path(path: Path, cwd: Path) -> str:
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)


class SharedFolders:
    """The watches on all running turns in shared folders. `start` runs a task in the background."""

    def __init__(
        self, *, feed: Feed, observer: FolderObserver, project: Callable[[], Path], start: StartTask
    ) -> None:
        self._feed = feed
        self._observer = observer
        self._project = project
        self._start = start
        self._watches: list[SharedFolderWatch] = []

    def watch(self, spec: WorkerSpec) -> "SharedFolderWatch | None":
        """Begin to watch a worker's turn; None if it cannot change shared files."""
        view = self._feed.view(spec.id)
        if view.spawned.workspace or not may_write(view):
            return None
        self._watches = [each for each in self._watches if self._is_needed(each)]
        watch = SharedFolderWatch(spec, self._project(), self._feed, self._concurrent)
        self._watches.append(watch)
        self._start(lambda: watch.begin(self._observer))
        return watch

    def _concurrent(self, watch: "SharedFolderWatch") -> Iterator["SharedFolderWatch"]:
        """The turns that ran at the same time."""
        return (
            other for other in self._watches if other is not watch and watch.overlaps_with(other)
        )

    def _is_needed(self, watch: "SharedFolderWatch") -> bool:
        """A finished turn is needed as long as a concurrent one runs."""
        return watch.runs or any(
            other.runs and watch.overlaps_with(other) for other in self._watches
        )


class SharedFolderWatch:
    """Watches one turn: the files before it, and what its worker did when."""

    def __init__(
        self,
        spec: WorkerSpec,
        project: Path,
        feed: Feed,
        beside: Callable[["SharedFolderWatch"], Iterator["SharedFolderWatch"]],
    ) -> None:
        self.worker = spec.id
        self.cwd = spec.cwd
        self.began = _file_time()
        self.ended: float | None = None
        self.wrote: dict[str, set[str] | None] = {}  # lines by file; None if unknown
        self._project = project
        self._feed = feed
        self._concurrent = beside
        self._ready = anyio.Event()
        self._observation: Observation | None = None
        self._blind_reason = NOT_OBSERVED
        self._reports_only_ends = spec.method in ONE_TURN_METHODS  # of calls, not their beginnings
        self._last_event_at = self.began
        self._calls: dict[str, CallSpan] = {}  # running, and may change files
        self._inputs: dict[str, object] = {}
        self._commands: list[CallSpan] = []
        self._edits: list[CallSpan] = []
        self._asked: set[str] = set()
        self._own: dict[str, ObservedChange] = {}  # what its commands changed, by file
        self._next_observation = 0.0
        self._known_meetings: set[tuple[str, str]] = set()  # other workers, with the file

    @property
    def runs(self) -> bool:
        return self.ended is None

    def overlaps_with(self, other: "SharedFolderWatch") -> bool:
        """Whether both ran at the same time; two turns of one worker never do."""
        begins_in_time = self.ended is None or other.began < self.ended
        return (
            other.worker != self.worker
            and begins_in_time
            and (other.ended is None or self.began < other.ended)
        )

    async def begin(self, observer: FolderObserver) -> None:
        """Record the files as they are. Never raises."""
        try:
            observation = await observer.observe(self.cwd, self._project)
        except (GoentError, OSError) as error:
            self._blind_reason = f"the files could not be compared ({error})"
        else:
            if self.runs and self._blind_reason == NOT_OBSERVED:
                self._observation, self._blind_reason = observation, ""
            else:  # too late: the worker is already working, or done
                await observation.close()
        finally:
            self._ready.set()

    async def ready(self) -> None:
        """Return when the files are recorded, or that takes too long."""
        with anyio.move_on_after(OBSERVE_TIMEOUT_S):
            await self._ready.wait()
        if not self._ready.is_set():
            self._blind_reason = TOO_LATE

    async def note_event(self, event: DriverEvent | PermissionAnswered) -> None:
        """Note an event of the worker, with its time."""
        now, before = time.time(), self._last_event_at
        self._last_event_at = _file_time()
        match event:
            case ToolCall():
                await self._call(event, now, before)
            case PermissionAsked():
                self._asked.add(event.id)
            case PermissionAnswered() | PermissionWithdrawn():
                self._asked.discard(event.id)
                if len(self._calls) == 1 and not self._asked:  # it began only now
                    ((name, waited),) = self._calls.items()
                    self._calls = {name: replace(waited, began=_file_time(), slack=0.0)}
            case _:
                pass

    async def _call(self, call: ToolCall, now: float, before: float) -> None:
        if call.input is not None:
            self._inputs[call.id] = call.input
        name = call.tool.lower()
        if call.status in ("pending", "running"):
            if name not in READ_ONLY_TOOLS:
                slack = min(CALL_SLACK_S, max(0.0, now - self.began))  # not before its turn
                self._calls.setdefault(
                    call.id, CallSpan(began=_file_time(), slack=slack, tool=name)
                )
            return
        # A call that reports only its end began after the event before it.
        window = replace(self._calls.pop(call.id, CallSpan(began=before)), ended=now)
        given = self._inputs.pop(call.id, None)
        if name in EDIT_TOOLS or call.changes:
            for change in call.changes if call.status == "completed" else ():
                path = str(self.cwd / change.path)
                self._edits.append(replace(window, path=path))
                self._note(path, edit_lines(given) if len(call.changes) == 1 else None)
                await self._notify_both(path)
        elif name not in READ_ONLY_TOOLS:
            self._commands.append(window)
            await self._observe_meanwhile()

    async def _observe_meanwhile(self) -> None:
        """Compare after a command if others are working: their later changes would hide this one's."""
        began = anyio.current_time()
        if began < self._next_observation or not any(
            other.runs for other in self._concurrent(self)
        ):
            return
        with anyio.move_on_after(OBSERVE_TIMEOUT_S):
            await self._sort_changes(await self._changes())
        took = anyio.current_time() - began
        self._next_observation = anyio.current_time() + OBSERVE_INTERVAL_FACTOR * took

    async def _sort_changes(self, changes: ObservedChanges) -> list[AlsoChanged]:
        """Record its own changes; returns those that are not certainly its own or another's."""
        parts = [self.part(), *(other.part(beside=True) for other in self._concurrent(self))]
        sorted_out = await anyio.to_thread.run_sync(
            lambda: [(change, possible_authors(change, parts)) for change in changes.files]
        )
        rest: list[AlsoChanged] = []
        for change, by in sorted_out:
            if by != (self.worker,):
                if len(by) != 1:  # a certain change of another worker is in that one's result
                    rest.append(AlsoChanged(path=self.shown(change.path), by=by))
            elif not self._edited(change):
                self._own[change.path] = change
                self.wrote[change.path] = None
                await self._notify_both(change.path)
        return rest

    def _note(self, path: str, said: EditLines | None) -> None:
        lines = self.wrote.setdefault(path, set())
        if said is None or lines is None:
            self.wrote[path] = None
        else:
            self.wrote[path] = (lines - said.removed) | said.added

    async def _notify_both(self, path: str) -> None:
        """Send both workers a notice, unless their turns have ended."""
        for other in self._concurrent(self):
            if path not in other.wrote or (other.worker, path) in self._known_meetings:
                continue
            self._known_meetings.add((other.worker, path))
            other._known_meetings.add((self.worker, path))  # noqa: SLF001 (of the same kind)
            for one, another in ((self, other), (other, self)):
                if one.runs:
                    text = (
                        f"{another.worker} changed {one.shown(path)}, too: both work in this folder"
                    )
                    await self._feed.append(one.worker, Noticed(text=text))

    def part(self, *, beside: bool = False) -> TurnActivity:
        """What the worker has done so far.

        `beside`: as seen by another turn, for which a worker that reports only ends may be running
        a command.
        """
        waits = len(self._calls) == 1 and self._asked
        running = () if waits else (w for w in self._calls.values() if w.tool not in EDIT_TOOLS)
        unknown = (
            (CallSpan(began=self._last_event_at),) if beside and self._reports_only_ends else ()
        )
        return TurnActivity(
            worker=self.worker,
            commands=(*self._commands, *running, *(unknown if self.runs else ())),
            edits=tuple(self._edits),
        )

    async def finish(self) -> FilesChanged | None:
        """Compare and return the changes; None if there are none. Waits for a limited time."""
        if not self.runs:
            return None
        changes = ObservedChanges(unseen=TOO_LATE)
        with anyio.move_on_after(OBSERVE_TIMEOUT_S, shield=True):
            changes = await self._changes()
        changed = await self._sorted(changes)
        self.ended = time.time()
        observation, self._observation = self._observation, None
        if observation:
            await observation.close()
        return changed if changed != FilesChanged() else None

    async def _changes(self) -> ObservedChanges:
        await self._ready.wait()
        if self._blind_reason or self._observation is None:
            return ObservedChanges(unseen=self._blind_reason)
        try:
            return await self._observation.changes()
        except (GoentError, OSError) as error:
            return ObservedChanges(unseen=f"the files could not be compared ({error})")

    async def _sorted(self, changes: ObservedChanges) -> FilesChanged:
        """Its own changes, those of others, and the overlaps."""
        also = await self._sort_changes(changes)
        different = {change.path for change in changes.files}
        own = (
            each for path, each in sorted(self._own.items()) if path in different or changes.unseen
        )
        return FilesChanged(
            files=tuple(
                FileChange(path=self.shown(each.path), added=each.added, removed=each.removed)
                for each in own
            ),
            also=tuple(also),
            overlaps=await anyio.to_thread.run_sync(self._overlaps),
            more=changes.more,
            unseen=changes.unseen,
        )

    def _edited(self, change: ObservedChange) -> bool:
        """Whether its tools reported the change: then its lines are counted there."""
        return any(is_edit_of(edit, change) for edit in self._edits)

    def _overlaps(self) -> tuple[Overlap, ...]:
        top = self._project if self.cwd.is_relative_to(self._project) else self.cwd
        return tuple(
            Overlap(worker_id=other.worker, path=path, kind=_overlap_kind(path, self, other, top))
            for other in self._concurrent(self)
            for path in self.wrote
            if path in other.wrote
        )

    def shown(self, path: str) -> str:
        """The path as its tools would name it."""
        whole = Path(path)
        return str(whole.relative_to(self.cwd)) if whole.is_relative_to(self.cwd) else path


def _file_time() -> float:
    """The earliest time stamp that a file changed now may get."""
    return time.time() - CLOCK_TOLERANCE_S


def _overlap_kind(
    path: str, one: SharedFolderWatch, other: SharedFolderWatch, top: Path
) -> OverlapKind:
    """`hunk_conflict` if lines that one of them wrote are gone: the other has overwritten them.

    Nothing outside `top` is read.
    """
    written = [lines for lines in (one.wrote[path], other.wrote[path]) if lines]
    if not written:
        return "file_overlap"
    try:
        there = lines_of(read_plain(path, LARGEST_FILE, inside=top).decode(errors="replace"))
    except FileNotFoundError:
        return "hunk_conflict"
    except OSError:
        return "file_overlap"
    return "file_overlap" if all(lines <= there for lines in written) else "hunk_conflict"
