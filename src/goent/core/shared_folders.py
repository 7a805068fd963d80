"""Tells what changed in folders that workers share, and who can have done it.

A worker's own edits are told by its tools; what a shell command changed is not. So the files are looked at
before a turn and after it, beside what else is being done, and `policy.attribution` says whose a change is. Two who
change one file at the same time are told so, both.
"""

import logging
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.core.feed import Feed
from goent.core.neighbours import may_write
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
from goent.domain.observation import Changed, Changes, Observation, Observer
from goent.domain.ports import WorkerSpec
from goent.domain.types import ONE_TURN, AlsoChanged, FileChange, Overlap, OverlapKind
from goent.plain_files import read_plain
from goent.policy.attribution import (
    EDITING,
    LOOKING,
    SLACK,
    Part,
    Window,
    Wording,
    candidates,
    is_edit_of,
    lines_of,
    wording,
)

log = logging.getLogger(__name__)

LOOKING_S = 10.0  # seconds that a turn waits for the look at its files, before it and after it
SELDOM = 10  # times as long as a look took, until the next one within a turn
TICK = 0.01  # seconds that the clock of a file system may be behind ours
LARGEST = 1024 * 1024  # bytes of a file in which lines are looked for
NOT_SEEN = "the files were not looked at before the turn"
TOO_LATE = f"looking at the files took longer than {LOOKING_S:g} s"
LOST = "go-ent ended in the middle of the turn, and how the files were before it is lost"

Start = Callable[[Callable[[], Coroutine[None, None, None]]], None]


class SharedFolders:
    """All turns under way in folders that are not the worker's own. `start` runs something beside."""

    def __init__(
        self, *, feed: Feed, observer: Observer, project: Callable[[], Path], start: Start
    ) -> None:
        self._feed = feed
        self._observer = observer
        self._project = project
        self._start = start
        self._looks: list[Look] = []

    def look(self, spec: WorkerSpec) -> "Look | None":
        """Begin to watch the worker's turn; None where it can change nothing that is shared."""
        view = self._feed.view(spec.id)
        if view.spawned.workspace or not may_write(view):
            return None
        self._looks = [look for look in self._looks if self._is_needed(look)]
        look = Look(spec, self._project(), self._feed, self._beside)
        self._looks.append(look)
        self._start(lambda: look.begin(self._observer))
        return look

    def _beside(self, look: "Look") -> Iterator["Look"]:
        """The turns that ran when this one did."""
        return (other for other in self._looks if other is not look and look.met(other))

    def _is_needed(self, look: "Look") -> bool:
        """A turn that is over can still be asked about while one runs that ran beside it."""
        return look.runs or any(other.runs and look.met(other) for other in self._looks)


class Look:
    """One turn: what the files were like before it, and what its worker did when."""

    def __init__(
        self,
        spec: WorkerSpec,
        project: Path,
        feed: Feed,
        beside: Callable[["Look"], Iterator["Look"]],
    ) -> None:
        self.worker = spec.id
        self.cwd = spec.cwd
        self.began = _tick()
        self.ended: float | None = None
        self.wrote: dict[str, set[str] | None] = {}  # by file: its lines, None where not known
        self._project = project
        self._feed = feed
        self._beside = beside
        self._ready = anyio.Event()
        self._observation: Observation | None = None
        self._unseen = NOT_SEEN
        self._tells_ends = spec.method in ONE_TURN  # of calls, and nothing before
        self._heard_at = self.began
        self._calls: dict[str, Window] = {}  # under way, that may change files
        self._inputs: dict[str, object] = {}
        self._commands: list[Window] = []
        self._edits: list[Window] = []
        self._asked: set[str] = set()
        self._own: dict[str, Changed] = {}  # what its commands changed, by file
        self._next_look = 0.0
        self._told: set[tuple[str, str]] = set()  # whom it is known to meet, in which file

    @property
    def runs(self) -> bool:
        return self.ended is None

    def met(self, other: "Look") -> bool:
        """Whether both ran at some moment; two turns of one worker never do."""
        begins_in_time = self.ended is None or other.began < self.ended
        return (
            other.worker != self.worker
            and begins_in_time
            and (other.ended is None or self.began < other.ended)
        )

    async def begin(self, observer: Observer) -> None:
        """Look at the files as they are. Raises nothing."""
        try:
            observation = await observer.observe(self.cwd, self._project)
        except (GoentError, OSError) as error:
            self._unseen = f"the files could not be compared ({error})"
        else:
            if self.runs and self._unseen == NOT_SEEN:
                self._observation, self._unseen = observation, ""
            else:  # too late: by now the worker is at work, or done
                await observation.close()
        finally:
            self._ready.set()

    async def ready(self) -> None:
        """Return when the files have been looked at; what takes too long is not waited for."""
        with anyio.move_on_after(LOOKING_S):
            await self._ready.wait()
        if not self._ready.is_set():
            self._unseen = TOO_LATE

    async def heard(self, event: DriverEvent | PermissionAnswered) -> None:
        """Note what the worker does, and when."""
        now, before = time.time(), self._heard_at
        self._heard_at = _tick()
        match event:
            case ToolCall():
                await self._call(event, now, before)
            case PermissionAsked():
                self._asked.add(event.id)
            case PermissionAnswered() | PermissionWithdrawn():
                self._asked.discard(event.id)
                if len(self._calls) == 1 and not self._asked:  # it waited until now
                    ((name, waited),) = self._calls.items()
                    self._calls = {name: replace(waited, began=_tick(), slack=0.0)}
            case _:
                pass

    async def _call(self, call: ToolCall, now: float, before: float) -> None:
        if call.input is not None:
            self._inputs[call.id] = call.input
        name = call.tool.lower()
        if call.status in ("pending", "running"):
            if name not in LOOKING:
                slack = min(SLACK, max(0.0, now - self.began))  # not before its turn
                self._calls.setdefault(call.id, Window(began=_tick(), slack=slack, tool=name))
            return
        # One that is told of only when it has ended began after what was told before.
        window = replace(self._calls.pop(call.id, Window(began=before)), ended=now)
        given = self._inputs.pop(call.id, None)
        if name in EDITING or call.changes:
            for change in call.changes if call.status == "completed" else ():
                path = str(self.cwd / change.path)
                self._edits.append(replace(window, path=path))
                self._note(path, wording(given) if len(call.changes) == 1 else None)
                await self._tell(path)
        elif name not in LOOKING:
            self._commands.append(window)
            await self._look_meanwhile()

    async def _look_meanwhile(self) -> None:
        """After a command, if others are at work: what they change later hides what it has changed."""
        began = anyio.current_time()
        if began < self._next_look or not any(other.runs for other in self._beside(self)):
            return
        with anyio.move_on_after(LOOKING_S):
            await self._take_own(await self._changes())
        took = anyio.current_time() - began
        self._next_look = anyio.current_time() + SELDOM * took

    async def _take_own(self, changes: Changes) -> list[AlsoChanged]:
        """Remember what can only be its own; the rest."""
        parts = [self.part(), *(other.part(beside=True) for other in self._beside(self))]
        sorted_out = await anyio.to_thread.run_sync(
            lambda: [(change, candidates(change, parts)) for change in changes.files]
        )
        rest: list[AlsoChanged] = []
        for change, by in sorted_out:
            if by != (self.worker,):
                if len(by) != 1:  # what is another's for certain is in that one's result
                    rest.append(AlsoChanged(path=self.shown(change.path), by=by))
            elif not self._edited(change):
                self._own[change.path] = change
                self.wrote[change.path] = None
                await self._tell(change.path)
        return rest

    def _note(self, path: str, said: Wording | None) -> None:
        lines = self.wrote.setdefault(path, set())
        if said is None or lines is None:
            self.wrote[path] = None
        else:
            self.wrote[path] = (lines - said.gone) | said.new

    async def _tell(self, path: str) -> None:
        """Both, as soon as it is known, if they still run."""
        for other in self._beside(self):
            if path not in other.wrote or (other.worker, path) in self._told:
                continue
            self._told.add((other.worker, path))
            other._told.add((self.worker, path))  # noqa: SLF001 (of the same kind)
            for one, another in ((self, other), (other, self)):
                if one.runs:
                    text = (
                        f"{another.worker} changed {one.shown(path)}, too: both work in this folder"
                    )
                    await self._feed.append(one.worker, Noticed(text=text))

    def part(self, *, beside: bool = False) -> Part:
        """What it has done so far. To others, one that tells only of ends may be running a command."""
        waits = len(self._calls) == 1 and self._asked
        running = () if waits else (w for w in self._calls.values() if w.tool not in EDITING)
        unknown = (Window(began=self._heard_at),) if beside and self._tells_ends else ()
        return Part(
            worker=self.worker,
            commands=(*self._commands, *running, *(unknown if self.runs else ())),
            edits=tuple(self._edits),
        )

    async def finish(self) -> FilesChanged | None:
        """What has changed, for the journal; None if there is nothing to tell. Does not wait long."""
        if not self.runs:
            return None
        changes = Changes(unseen=TOO_LATE)
        with anyio.move_on_after(LOOKING_S, shield=True):
            changes = await self._changes()
        told = await self._sorted(changes)
        self.ended = time.time()
        observation, self._observation = self._observation, None
        if observation:
            await observation.close()
        return told if told != FilesChanged() else None

    async def _changes(self) -> Changes:
        await self._ready.wait()
        if self._unseen or self._observation is None:
            return Changes(unseen=self._unseen)
        try:
            return await self._observation.changes()
        except (GoentError, OSError) as error:
            return Changes(unseen=f"the files could not be compared ({error})")

    async def _sorted(self, changes: Changes) -> FilesChanged:
        """Its own, those of others, and where they meet."""
        also = await self._take_own(changes)
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

    def _edited(self, change: Changed) -> bool:
        """Told by its tools: then its lines are counted there."""
        return any(is_edit_of(edit, change) for edit in self._edits)

    def _overlaps(self) -> tuple[Overlap, ...]:
        top = self._project if self.cwd.is_relative_to(self._project) else self.cwd
        return tuple(
            Overlap(worker_id=other.worker, path=path, kind=_kind(path, self, other, top))
            for other in self._beside(self)
            for path in self.wrote
            if path in other.wrote
        )

    def shown(self, path: str) -> str:
        """As its tools would name it."""
        whole = Path(path)
        return str(whole.relative_to(self.cwd)) if whole.is_relative_to(self.cwd) else path


def _tick() -> float:
    """The time that a file which is changed now may have."""
    return time.time() - TICK


def _kind(path: str, one: Look, other: Look, top: Path) -> OverlapKind:
    """Whether lines that one of them wrote are gone: then the other has written over them.

    Nothing outside the top is read.
    """
    written = [lines for lines in (one.wrote[path], other.wrote[path]) if lines]
    if not written:
        return "file_overlap"
    try:
        there = lines_of(read_plain(path, LARGEST, inside=top).decode(errors="replace"))
    except FileNotFoundError:
        return "hunk_conflict"
    except OSError:
        return "file_overlap"
    return "file_overlap" if all(lines <= there for lines in written) else "hunk_conflict"
