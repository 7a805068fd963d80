"""Decides which of OpenCode's tool calls may run, and finds calls that ran without permission.

The guard plugin inside OpenCode submits every call before it runs. A call needs permission for
everything it does: the command, the edit, the address, and leaving the worker's directory. Paths
are judged after links are followed. A tool that is not OpenCode's own may do anything.

Afterwards, every call that OpenCode reports as completed is checked again: one that needed a verdict
and has none got past the guard. A verdict is good for one call, because models reuse call ids.
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
from goent.agents.worker_paths import ANYWHERE, OUTSIDE, WorkerPaths
from goent.domain.errors import PermissionBypassed
from goent.domain.ports import GuardedCall, GuardVerdict
from goent.opencode.server_api import MessagePart, ServerData, decode_leniently
from goent.permissions.access_rules import AccessRequest
from goent.system.plain_files import read_plain_text

MAX_DIFF_BYTES = 16_000_000  # of a file whose change is shown
GUARD_PLUGIN = Path(__file__).with_name("guard.js")
EDITS = frozenset({"edit", "write", "apply_patch", "patch", "multiedit"})
# Tools that must not run without a verdict; a call that did is found when it ends.
GUARDED_TOOLS = EDITS | {"bash", "webfetch", "websearch"}
# OpenCode's own tools that neither change nor fetch anything; what a subagent does is judged by
# itself. No name with `_`: a tool `exit` of an MCP server `plan` is `plan_exit`.
_HARMLESS = frozenset({"todowrite", "todoread", "skill", "question", "invalid"})
LOAD_TIMEOUT_S = 20.0  # for the guard to load in a directory that OpenCode has opened
FOREIGN_TASK = GuardVerdict(
    allow=False,
    message="This task_id does not belong to this session. Leave it out to start a new task.",
)
UNKNOWN_SESSION = GuardVerdict(
    allow=False, message="go-ent does not know this session, so the call may not run"
)
# OpenCode adds these to a file that is read below them.
_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
_ENVIRONMENT = re.compile(r"(?!.*\.example$).*\.env(?:\..*)?")  # it may hold keys
_READ_TOOLS = {
    "read": "filePath",
    "grep": "path",
    "glob": "path",
    "list": "path",
    "lsp": "filePath",
}
# Mentions and patches are parsed as OpenCode does, with JavaScript's idea of white space.
_BLANKS = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to):(?P<path>.*)$", re.MULTILINE)
_MENTION = re.compile(rf"(?<![A-Za-z0-9_`])@(?P<path>\.?[^{_BLANKS}`,.]*(?:\.[^{_BLANKS}`,.]+)*)")


class CallJudge(Protocol):
    """A session that judges its own calls and its subagents'."""

    @property
    def worker(self) -> str: ...

    @property
    def directory(self) -> str: ...

    async def judge(self, call: GuardedCall) -> GuardVerdict: ...


class ProcessGuard:
    """The port `ToolGuard`, for one OpenCode process: finds the session that judges a call.

    `shell_variables` confine the commands of a worker to its folder, and `hint` explains the output
    of one that failed there.
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
        """In some directory; each session waits for its own before it prompts a model."""
        return any(event.is_set() for event in self._directories.values())

    def mark_loaded(self, directory: str) -> None:
        self._directories.setdefault(directory, anyio.Event()).set()

    def unloaded(self, directory: str) -> None:
        """OpenCode has unloaded the directory, and the guard with it."""
        if self.is_guarded(directory):  # a session may be waiting for one that is not loaded
            del self._directories[directory]

    def is_guarded(self, directory: str) -> bool:
        """Whether the guard is loaded there."""
        event = self._directories.get(directory)
        return event is not None and event.is_set()

    async def wait_until_loaded(self, directory: str) -> bool:
        """The same, with a timeout for OpenCode to load it."""
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
    """Whether a call would prompt another worker's session, which may be allowed more."""
    return bool(call.resumes) and call.resumes != call.owner


def access_for_guarded_call(call: GuardedCall, workdir: WorkerPaths) -> tuple[AccessRequest, ...]:
    """Everything that has to be allowed for the call; nothing if it only reads in its directory."""
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
    """Rules match the command; a person sees it with its folder, and allows both."""
    command, folder = _text_argument(call, "command"), _text_argument(call, "workdir")
    places = _possible_paths(call, folder)
    commands = dict.fromkeys(workdir.command_in(place, command) for place in places)
    shown = "\n".join(commands) or command
    yield from _outside_access(places, workdir, shown)
    yield AccessRequest(
        permission="bash", patterns=(command,), always=(shown,), exact=True, detail=shown
    )


def _fetch_access(call: GuardedCall) -> Iterator[AccessRequest]:
    """An address, or a search, which counts as a fetch where no rule is about it."""
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
    """A file that a subagent's prompt mentions is sent with it, links followed."""
    prompt = _text_argument(call, "prompt")
    top = Path(call.worktree or call.directory)
    for name in dict.fromkeys(found["path"] for found in _MENTION.finditer(prompt)):
        own = name.startswith("~/")  # in OpenCode's home, which need not be ours
        path = os.path.normpath(top / (Path(name).expanduser() if own else name))
        if own or (name and Path(path).exists()):
            yield from _outside_access([path, *_linked_instructions(path, call)], workdir, prompt)


def _other_access(call: GuardedCall) -> Iterator[AccessRequest]:
    """A tool of an MCP server or a plugin counts as a command where no rule is about it.

    Its input may be a command, so an "always" is for this very call.
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
        # As in OpenCode itself: asked about in every preset, unless a rule is about reading.
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
    """The paths that OpenCode may mean. It takes `~` and addresses for file names.

    It resolves `..` in some paths by text, links or not, and leaves others to the system.
    """
    whole = [str(Path(call.directory, path)) for path in paths if path]
    return [*dict.fromkeys(way for path in whole for way in (path, os.path.normpath(path)))]


def _outside_access(paths: list[str], workdir: WorkerPaths, detail: str) -> Iterator[AccessRequest]:
    """Leaving the worker's directory, if one of the paths does or cannot be resolved."""
    if patterns := tuple(dict.fromkeys(workdir.outside_patterns(paths))):
        always = () if ANYWHERE in patterns else patterns
        yield AccessRequest(
            permission=OUTSIDE, patterns=patterns, always=always, exact=True, detail=detail
        )


def _linked_instructions(path: str, call: GuardedCall) -> Iterator[str]:
    """Instructions that OpenCode would add from below its directory, where they are links."""
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


MAX_DETAIL = 300  # characters of what ran
_SUBJECTS = ("command", "filePath", "url", "patchText", "patch")


class GuardedState(ServerData, frozen=True, kw_only=True):
    """The fields of a tool call's state that decide: others must not make it unreadable."""

    status: str = ""
    input: Mapping[str, object] = {}


class BypassDetector:
    """Finds calls of one session and its subagents that were completed without a verdict.

    Where there is no guard, `excused` decides whether a call needed none.
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
        """The sessions with calls that began and were not seen to end."""
        return frozenset(self._open.values())

    def check(self, part: MessagePart, *, from_start: bool = True) -> PermissionBypassed | None:
        """The error if a call, as it is now, was completed and never allowed.

        With `from_start`, only calls seen to begin count: OpenCode reports old ones again.
        """
        state = decode_leniently(part.state, GuardedState)
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
        return None if self._was_allowed(call) else _bypass_error(call)

    def _was_allowed(self, call: GuardedCall) -> bool:
        if self._allowed[call.session, call.call] > 0:
            self._allowed[call.session, call.call] -= 1
            return True
        return self._excused is not None and self._excused(call)


def _bypass_error(call: GuardedCall) -> PermissionBypassed:
    subject = next((value for name in _SUBJECTS if (value := call.args.get(name))), "")
    return PermissionBypassed(
        f"OpenCode ran {call.tool} {str(subject)[:MAX_DETAIL]!r}, which go-ent did not allow: OpenCode did not ask first. "
        "The turn was ended; what it did so far is in place: check it before you continue"
    )
