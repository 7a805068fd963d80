"""Decides which of OpenCode's tool calls may run, and finds calls that ran without permission.

The guard inside OpenCode puts every call to us before it runs. A call needs whatever its accesses
need: the command, the edit, the address, and the way out of the worker's directory. Paths are
judged after links are followed. A tool that is not OpenCode's own may do anything.

The guard decides before a call runs. This is the second look, at the calls that OpenCode says it has
completed: one that must be judged and has no verdict got past the guard. A verdict is good for one call,
for models use the same call ids again.
"""

import os
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import anyio
import msgspec

from goent.agents.open_questions import show_diff
from goent.agents.worker_paths import WorkerPaths
from goent.domain.errors import PermissionBypassed
from goent.domain.ports import GuardedCall, GuardVerdict
from goent.opencode.server_api import MessagePart, ServerData
from goent.permissions.access_rules import AccessRequest
from goent.system.plain_files import read_plain_text

MAX_DIFF_BYTES = 16_000_000  # bytes of a file whose change is shown
GUARD_PLUGIN = Path(__file__).with_name("guard.js")
OUTSIDE = "external_directory"
EDITS = frozenset({"edit", "write", "apply_patch", "patch", "multiedit"})
# What must not be done without a verdict; a call that was is found by its end.
GUARDED_TOOLS = EDITS | {"bash", "webfetch", "websearch"}
# No name with `_` in it: a tool `exit` of an MCP server `plan` is `plan_exit`.
# OpenCode's own that neither change nor fetch anything; what a subagent does is judged by itself.
_HARMLESS = frozenset({"todowrite", "todoread", "skill", "question", "invalid"})
LOAD_TIMEOUT_S = 20.0  # seconds for the guard to come up in a directory that OpenCode has opened
FOREIGN_TASK = GuardVerdict(
    allow=False,
    message="This task_id is no task of this session's. Leave it out to start a new one.",
)
UNKNOWN_SESSION = GuardVerdict(
    allow=False, message="go-ent does not know this session, so the call may not run"
)
# OpenCode sends these along with a file that is read below them.
_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
_ENVIRONMENT = re.compile(r"(?!.*\.example$).*\.env(?:\..*)?")  # it may hold keys
_READ_TOOLS = {
    "read": "filePath",
    "grep": "path",
    "glob": "path",
    "list": "path",
    "lsp": "filePath",
}
# Read as OpenCode reads them: with what JavaScript calls a blank, and a letter.
_BLANKS = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to):(?P<path>.*)$", re.MULTILINE)
_MENTION = re.compile(rf"(?<![A-Za-z0-9_`])@(?P<path>\.?[^{_BLANKS}`,.]*(?:\.[^{_BLANKS}`,.]+)*)")


class CallJudge(Protocol):
    """A session that decides on its own calls and on its subagents'."""

    @property
    def worker(self) -> str: ...

    @property
    def directory(self) -> str: ...

    async def judge(self, call: GuardedCall) -> GuardVerdict: ...


class ProcessGuard:
    """The port `ToolGuard`, for one OpenCode process: finds the session that decides.

    `shell_variables` says what confines the commands of whoever works in a folder, and `hint` what to
    say after the words of one that failed there.
    """

    def __init__(
        self,
        shell_variables: Callable[[str, Path], Mapping[str, str]],
        hint: Callable[[Path, str], str],
    ) -> None:
        self._shell_variables = shell_variables
        self._hint = hint
        self._sessions: dict[str, CallJudge] = {}
        self._directories: dict[str, anyio.Event] = {}

    def add(self, session: str, judge: CallJudge) -> None:
        self._sessions[session] = judge

    def remove(self, session: str) -> None:
        self._sessions.pop(session, None)

    @property
    def is_loaded(self) -> bool:
        """Somewhere; each session waits for its own directory before it asks a model."""
        return any(event.is_set() for event in self._directories.values())

    def mark_loaded(self, directory: str) -> None:
        self._directories.setdefault(directory, anyio.Event()).set()

    def unloaded(self, directory: str) -> None:
        """OpenCode forgets the directory, and the guard there with it."""
        if self.is_guarded(directory):  # somebody may wait for one that is not loaded
            del self._directories[directory]

    def is_guarded(self, directory: str) -> bool:
        """Whether nothing can run there without us by now."""
        event = self._directories.get(directory)
        return event is not None and event.is_set()

    async def wait_until_loaded(self, directory: str) -> bool:
        """The same; waits a little for OpenCode to get there."""
        with anyio.move_on_after(LOAD_TIMEOUT_S):
            await self._directories.setdefault(directory, anyio.Event()).wait()
            return True
        return False

    async def judge(self, call: GuardedCall) -> GuardVerdict:
        judge = self._sessions.get(call.owner)
        return await judge.judge(call) if judge else UNKNOWN_SESSION

    def hint(self, session: str, output: str) -> str:
        judge = self._sessions.get(session)
        return self._hint(Path(judge.directory), output) if judge else ""

    def shell_environment(self, session: str) -> Mapping[str, str]:
        judge = self._sessions.get(session)
        return self._shell_variables(judge.worker, Path(judge.directory)) if judge else {}


def resumes_foreign_session(call: GuardedCall) -> bool:
    """Whether it would prompt another worker's session, which may be allowed more."""
    return bool(call.resumes) and call.resumes != call.owner


def access_for_guarded_call(call: GuardedCall, workdir: WorkerPaths) -> tuple[AccessRequest, ...]:
    """All that has to be allowed for the call; nothing for one that only looks inside."""
    match call.tool:
        case "bash":
            found = _command_access(call, workdir)
        case "webfetch" | "websearch":
            found = _fetch_access(call)
        case "task":
            found = _task_access(call, workdir)
        case tool if tool in EDITS:
            found = _edit_access(call, workdir)
        case tool if tool in _READ_TOOLS:
            found = _read_access(call, workdir)
        case tool if tool in _HARMLESS:
            found = ()
        case _:
            found = _other_access(call)
    return tuple(found)


def _command_access(call: GuardedCall, workdir: WorkerPaths) -> Iterator[AccessRequest]:
    """Rules speak of the command; a person sees it with the folder that it is run in, and allows both."""
    command, folder = _text_argument(call, "command"), _text_argument(call, "workdir")
    places = _possible_paths(call, folder)
    ways = dict.fromkeys(workdir.command_in(place, command) for place in places)
    shown = "\n".join(ways) or command
    yield from _outside_access(places, workdir, shown)
    yield AccessRequest(
        permission="bash", patterns=(command,), always=(shown,), exact=True, detail=shown
    )


def _fetch_access(call: GuardedCall) -> Iterator[AccessRequest]:
    """An address, or what is searched for; a search is like a fetch where no rule speaks of it."""
    what = _text_argument(call, "url") or _text_argument(call, "query")
    yield AccessRequest(
        permission=call.tool,
        patterns=(what,),
        always=(what,),
        exact=True,
        detail=what,
        falls_back_to="webfetch",
    )


def _task_access(call: GuardedCall, workdir: WorkerPaths) -> Iterator[AccessRequest]:
    """A file that a subagent's prompt mentions is sent along with it, links followed."""
    prompt = _text_argument(call, "prompt")
    top = Path(call.worktree or call.directory)
    for name in dict.fromkeys(found["path"] for found in _MENTION.finditer(prompt)):
        own = name.startswith("~/")  # in OpenCode's home, which need not be ours
        path = os.path.normpath(top / (Path(name).expanduser() if own else name))
        if own or (name and Path(path).exists()):
            yield from _outside_access([path, *_linked_instructions(path, call)], workdir, prompt)


def _other_access(call: GuardedCall) -> Iterator[AccessRequest]:
    """A tool of an MCP server or a plugin: as much as a command where no rule speaks of it.

    What it is given may be a command, so an "always" is for this very call.
    """
    args = msgspec.json.encode(call.args).decode()
    yield AccessRequest(
        permission=call.tool,
        patterns=("*",),
        always=(args,),
        exact=True,
        detail=f"{call.tool} {args}",
        falls_back_to="bash",
    )


def _read_access(call: GuardedCall, workdir: WorkerPaths) -> Iterator[AccessRequest]:
    path = _text_argument(call, _READ_TOOLS[call.tool])
    paths = _possible_paths(call, path)
    beside = (
        [each for one in paths for each in _linked_instructions(one, call)]
        if call.tool == "read"
        else []
    )
    yield from _outside_access([*paths, *beside], workdir, path)
    if call.tool == "read" and any(_ENVIRONMENT.fullmatch(Path(one).name) for one in paths):
        # As OpenCode by itself: it is asked about in every preset, unless a rule speaks of reading.
        yield AccessRequest(
            permission="read",
            patterns=(path,),
            always=(path,),
            exact=True,
            detail=path,
            falls_back_to=OUTSIDE,
        )


def _edit_access(call: GuardedCall, workdir: WorkerPaths) -> Iterator[AccessRequest]:
    written = [path for path in (_text_argument(call, "filePath"), *_patch_paths(call)) if path]
    detail = "\n".join(filter(None, (", ".join(written), _diff(call, workdir))))
    paths = _possible_paths(call, *written)
    yield from _outside_access(paths, workdir, detail)
    real = {path: workdir.resolve(path) for path in paths}
    shown = tuple(
        dict.fromkeys(
            workdir.from_checkout(place) if place else path for path, place in real.items()
        )
    )
    yield AccessRequest(
        permission="edit",
        patterns=shown or ("*",),
        always=shown,
        exact=True,
        detail=detail,
        reason=next((why for path in paths if (why := workdir.guard_reason(path))), ""),
    )


def _possible_paths(call: GuardedCall, *paths: str) -> list[str]:
    """What OpenCode may mean by them. It takes `~` and addresses for names of files.

    Of some paths it drops `..` with the name before, links or not; others the system reads.
    """
    whole = [str(Path(call.directory, path)) for path in paths if path]
    return [*dict.fromkeys(way for path in whole for way in (path, os.path.normpath(path)))]


def _outside_access(paths: list[str], workdir: WorkerPaths, detail: str) -> Iterator[AccessRequest]:
    """The way out of the worker's directory, where one of the paths leads there or nobody can tell."""
    places = {path: workdir.resolve(path) for path in paths if path}
    away = [
        workdir.folder_pattern(place) if place else "/*"
        for place in places.values()
        if not (place and workdir.contains(place))
    ]
    if away:
        patterns = tuple(dict.fromkeys(away))
        always = () if "/*" in patterns else patterns
        yield AccessRequest(
            permission=OUTSIDE, patterns=patterns, always=always, exact=True, detail=detail
        )


def _linked_instructions(path: str, call: GuardedCall) -> Iterator[str]:
    """Instructions that OpenCode would send along from below its directory, where they are links."""
    top = Path(os.path.normpath(call.directory))
    for folder in Path(os.path.normpath(path)).parents:
        if folder == top or not folder.is_relative_to(top):
            return
        with suppress(OSError, ValueError):
            yield from (
                str(folder / each) for each in _INSTRUCTIONS if (folder / each).is_symlink()
            )


def _patch_paths(call: GuardedCall) -> Iterator[str]:
    text = _text_argument(call, "patchText") or _text_argument(call, "patch")
    yield from (found["path"].strip(_BLANKS) for found in _PATCHED.finditer(text))


def _diff(call: GuardedCall, workdir: WorkerPaths) -> str:
    """The whole change, for a person."""
    args, before = call.args, ""
    path = next(
        (
            workdir.resolve(each)
            for each in _possible_paths(call, _text_argument(call, "filePath"))[-1:]
        ),
        None,
    )
    with suppress(OSError, UnicodeDecodeError):
        before = read_plain_text(path, MAX_DIFF_BYTES) if path and path.is_file() else ""
    match args:
        case {"content": str(after)}:
            return show_diff(before, after)
        case {"oldString": str(old), "newString": str(new)}:
            if before.count(old) == 1 or (old in before and args.get("replaceAll") is True):
                return show_diff(before, before.replace(old, new))
            return show_diff(old, new)
        case {"patchText": str(patch)} | {"patch": str(patch)}:
            return patch
        case _:
            return "\n".join(f"{name}: {value}" for name, value in args.items())


def _text_argument(call: GuardedCall, name: str) -> str:
    args: Mapping[str, object] = call.args
    value = args.get(name)
    return value if isinstance(value, str) else ""


DETAIL = 300  # characters of what ran
_SUBJECTS = ("command", "filePath", "url", "patchText", "patch")


class CallState(ServerData, frozen=True, kw_only=True):
    """How far a tool call has come, and what it was given."""

    status: str = ""
    input: Mapping[str, object] = {}


class BypassDetector:
    """The verdicts on the calls of one session and its subagents, and what was completed without one.

    `excused` decides on a call without a verdict, where there is no guard.
    """

    def __init__(self, excused: Callable[[GuardedCall], bool] | None = None) -> None:
        self.missed = False  # events may have been lost
        self._excused = excused
        self._allowed: Counter[tuple[str, str]] = Counter()
        self._open: dict[str, str] = {}
        self._ended: set[str] = set()

    def allow(self, session: str, call: str) -> None:
        self._allowed[session, call] += 1

    @property
    def unfinished(self) -> frozenset[str]:
        """The sessions with calls that have begun and were not seen to end."""
        return frozenset(self._open.values())

    def check(self, part: MessagePart, *, from_start: bool = True) -> PermissionBypassed | None:
        """Look at a call as it is now; an error if it was completed and never allowed.

        With `from_start` only a call counts that was seen to begin: OpenCode tells of old ones again.
        """
        state = read_call_state(part)
        if part.type != "tool" or part.tool not in GUARDED_TOOLS or part.id in self._ended:
            return None
        if state.status in ("pending", "running"):
            self._open[part.id] = part.session
            return None
        known = self._open.pop(part.id, None) is not None
        self._ended.add(part.id)
        if state.status != "completed" or not (known or not from_start):
            return None
        call = GuardedCall(
            owner="",
            session=part.session,
            call=part.call,
            tool=part.tool,
            directory="",
            args=state.input,
        )
        return None if self._may(call) else bypass_error(call)

    def _may(self, call: GuardedCall) -> bool:
        if self._allowed[call.session, call.call] > 0:
            self._allowed[call.session, call.call] -= 1
            return True
        return self._excused is not None and self._excused(call)


def read_call_state(part: MessagePart) -> CallState:
    try:
        return msgspec.json.decode(part.state, type=CallState)
    except msgspec.DecodeError:
        return CallState()


def bypass_error(call: GuardedCall) -> PermissionBypassed:
    """What to tell the worker's owner."""
    told = next((value for name in _SUBJECTS if (value := call.args.get(name))), "")
    return PermissionBypassed(
        f"OpenCode ran {call.tool} {str(told)[:DETAIL]!r}, which go-ent did not allow: OpenCode did not ask first. "
        "The turn was ended; what it did so far is in place: look at it before you go on"
    )
