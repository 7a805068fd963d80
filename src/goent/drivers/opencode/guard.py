"""What OpenCode's tool calls are about, and whose they are: the Python side of `guard.js`.

The guard inside OpenCode puts every call to us before it runs. A call needs whatever its matters
need: the command, the edit, the address, and the way out of the worker's directory. Paths are
judged after links are followed. A tool that is not OpenCode's own may do anything.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import anyio
import msgspec

from goent.domain.guard import GuardedCall, Verdict
from goent.drivers.diffs import unified
from goent.drivers.ground import Ground
from goent.drivers.questions import Matter
from goent.plain_files import read_plain_text

MOST_SHOWN = 16_000_000  # bytes of a file whose change is shown
PLUGIN = Path(__file__).with_name("guard.js")
OUTSIDE = "external_directory"
EDITS = frozenset({"edit", "write", "apply_patch", "patch", "multiedit"})
# What must not be done without a verdict; a call that was is found by its end.
JUDGED = EDITS | {"bash", "webfetch", "websearch"}
# No name with `_` in it: a tool `exit` of an MCP server `plan` is `plan_exit`.
# OpenCode's own that neither change nor fetch anything; what a subagent does is judged by itself.
_HARMLESS = frozenset({"todowrite", "todoread", "skill", "question", "invalid"})
LOADING = 20.0  # seconds for the guard to come up in a directory that OpenCode has opened
STRANGER = Verdict(
    allow=False,
    message="This task_id is no task of this session's. Leave it out to start a new one.",
)
NOBODY = Verdict(allow=False, message="go-ent does not know this session, so the call may not run")
# OpenCode sends these along with a file that is read below them.
_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
_ENVIRONMENT = re.compile(r"(?!.*\.example$).*\.env(?:\..*)?")  # it may hold keys
_LOOKS = {"read": "filePath", "grep": "path", "glob": "path", "list": "path", "lsp": "filePath"}
# Read as OpenCode reads them: with what JavaScript calls a blank, and a letter.
_BLANKS = "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_PATCHED = re.compile(r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to):(?P<path>.*)$", re.MULTILINE)
_MENTION = re.compile(rf"(?<![A-Za-z0-9_`])@(?P<path>\.?[^{_BLANKS}`,.]*(?:\.[^{_BLANKS}`,.]+)*)")


class Judge(Protocol):
    """A session that decides on its own calls and on its subagents'."""

    @property
    def worker(self) -> str: ...

    @property
    def directory(self) -> str: ...

    async def judge(self, call: GuardedCall) -> Verdict: ...


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
        self._sessions: dict[str, Judge] = {}
        self._directories: dict[str, anyio.Event] = {}

    def add(self, session: str, judge: Judge) -> None:
        self._sessions[session] = judge

    def remove(self, session: str) -> None:
        self._sessions.pop(session, None)

    @property
    def in_force(self) -> bool:
        """Somewhere; each session waits for its own directory before it asks a model."""
        return any(event.is_set() for event in self._directories.values())

    def loaded(self, directory: str) -> None:
        self._directories.setdefault(directory, anyio.Event()).set()

    def unloaded(self, directory: str) -> None:
        """OpenCode forgets the directory, and the guard there with it."""
        if self.holds(directory):  # somebody may wait for one that is not loaded
            del self._directories[directory]

    def holds(self, directory: str) -> bool:
        """Whether nothing can run there without us by now."""
        event = self._directories.get(directory)
        return event is not None and event.is_set()

    async def is_loaded(self, directory: str) -> bool:
        """The same; waits a little for OpenCode to get there."""
        with anyio.move_on_after(LOADING):
            await self._directories.setdefault(directory, anyio.Event()).wait()
            return True
        return False

    async def judge(self, call: GuardedCall) -> Verdict:
        judge = self._sessions.get(call.owner)
        return await judge.judge(call) if judge else NOBODY

    def hint(self, session: str, output: str) -> str:
        judge = self._sessions.get(session)
        return self._hint(Path(judge.directory), output) if judge else ""

    def shell(self, session: str) -> Mapping[str, str]:
        judge = self._sessions.get(session)
        return self._shell_variables(judge.worker, Path(judge.directory)) if judge else {}


def goes_astray(call: GuardedCall) -> bool:
    """Whether it would prompt another worker's session, which may be allowed more."""
    return bool(call.resumes) and call.resumes != call.owner


def matters(call: GuardedCall, ground: Ground) -> tuple[Matter, ...]:
    """All that has to be allowed for the call; nothing for one that only looks inside."""
    match call.tool:
        case "bash":
            found = _of_command(call, ground)
        case "webfetch" | "websearch":
            found = _of_fetch(call)
        case "task":
            found = _of_delegation(call, ground)
        case tool if tool in EDITS:
            found = _of_edit(call, ground)
        case tool if tool in _LOOKS:
            found = _of_look(call, ground)
        case tool if tool in _HARMLESS:
            found = ()
        case _:
            found = _of_another(call)
    return tuple(found)


def _of_command(call: GuardedCall, ground: Ground) -> Iterator[Matter]:
    """Rules speak of the command; a person sees it with the folder that it is run in, and allows both."""
    command, folder = _text(call, "command"), _text(call, "workdir")
    places = _readings(call, folder)
    ways = dict.fromkeys(ground.command_in(place, command) for place in places)
    shown = "\n".join(ways) or command
    yield from _outside(places, ground, shown)
    yield Matter(permission="bash", patterns=(command,), always=(shown,), exact=True, detail=shown)


def _of_fetch(call: GuardedCall) -> Iterator[Matter]:
    """An address, or what is searched for; a search is like a fetch where no rule speaks of it."""
    what = _text(call, "url") or _text(call, "query")
    yield Matter(
        permission=call.tool,
        patterns=(what,),
        always=(what,),
        exact=True,
        detail=what,
        like="webfetch",
    )


def _of_delegation(call: GuardedCall, ground: Ground) -> Iterator[Matter]:
    """A file that a subagent's prompt mentions is sent along with it, links followed."""
    prompt = _text(call, "prompt")
    top = Path(call.worktree or call.directory)
    for name in dict.fromkeys(found["path"] for found in _MENTION.finditer(prompt)):
        own = name.startswith("~/")  # in OpenCode's home, which need not be ours
        path = os.path.normpath(top / (Path(name).expanduser() if own else name))
        if own or (name and Path(path).exists()):
            yield from _outside([path, *_beside(path, call)], ground, prompt)


def _of_another(call: GuardedCall) -> Iterator[Matter]:
    """A tool of an MCP server or a plugin: as much as a command where no rule speaks of it.

    What it is given may be a command, so an "always" is for this very call.
    """
    args = msgspec.json.encode(call.args).decode()
    yield Matter(
        permission=call.tool,
        patterns=("*",),
        always=(args,),
        exact=True,
        detail=f"{call.tool} {args}",
        like="bash",
    )


def _of_look(call: GuardedCall, ground: Ground) -> Iterator[Matter]:
    path = _text(call, _LOOKS[call.tool])
    paths = _readings(call, path)
    beside = [each for one in paths for each in _beside(one, call)] if call.tool == "read" else []
    yield from _outside([*paths, *beside], ground, path)
    if call.tool == "read" and any(_ENVIRONMENT.fullmatch(Path(one).name) for one in paths):
        # As OpenCode by itself: it is asked about in every preset, unless a rule speaks of reading.
        yield Matter(
            permission="read",
            patterns=(path,),
            always=(path,),
            exact=True,
            detail=path,
            like=OUTSIDE,
        )


def _of_edit(call: GuardedCall, ground: Ground) -> Iterator[Matter]:
    written = [path for path in (_text(call, "filePath"), *_patched(call)) if path]
    detail = "\n".join(filter(None, (", ".join(written), _diff(call, ground))))
    paths = _readings(call, *written)
    yield from _outside(paths, ground, detail)
    real = {path: ground.real(path) for path in paths}
    shown = tuple(
        dict.fromkeys(ground.shown(place) if place else path for path, place in real.items())
    )
    yield Matter(
        permission="edit",
        patterns=shown or ("*",),
        always=shown,
        exact=True,
        detail=detail,
        reason=next((why for path in paths if (why := ground.guard(path))), ""),
    )


def _readings(call: GuardedCall, *paths: str) -> list[str]:
    """What OpenCode may mean by them. It takes `~` and addresses for names of files.

    Of some paths it drops `..` with the name before, links or not; others the system reads.
    """
    whole = [str(Path(call.directory, path)) for path in paths if path]
    return [*dict.fromkeys(way for path in whole for way in (path, os.path.normpath(path)))]


def _outside(paths: list[str], ground: Ground, detail: str) -> Iterator[Matter]:
    """The way out of the worker's directory, where one of the paths leads there or nobody can tell."""
    places = {path: ground.real(path) for path in paths if path}
    away = [
        ground.around(place) if place else "/*"
        for place in places.values()
        if not (place and ground.holds(place))
    ]
    if away:
        patterns = tuple(dict.fromkeys(away))
        always = () if "/*" in patterns else patterns
        yield Matter(
            permission=OUTSIDE, patterns=patterns, always=always, exact=True, detail=detail
        )


def _beside(path: str, call: GuardedCall) -> Iterator[str]:
    """Instructions that OpenCode would send along from below its directory, where they are links."""
    top = Path(os.path.normpath(call.directory))
    for folder in Path(os.path.normpath(path)).parents:
        if folder == top or not folder.is_relative_to(top):
            return
        with suppress(OSError, ValueError):
            yield from (
                str(folder / each) for each in _INSTRUCTIONS if (folder / each).is_symlink()
            )


def _patched(call: GuardedCall) -> Iterator[str]:
    text = _text(call, "patchText") or _text(call, "patch")
    yield from (found["path"].strip(_BLANKS) for found in _PATCHED.finditer(text))


def _diff(call: GuardedCall, ground: Ground) -> str:
    """The whole change, for a person."""
    args, before = call.args, ""
    path = next((ground.real(each) for each in _readings(call, _text(call, "filePath"))[-1:]), None)
    with suppress(OSError, UnicodeDecodeError):
        before = read_plain_text(path, MOST_SHOWN) if path and path.is_file() else ""
    match args:
        case {"content": str(after)}:
            return unified(before, after)
        case {"oldString": str(old), "newString": str(new)}:
            if before.count(old) == 1 or (old in before and args.get("replaceAll") is True):
                return unified(before, before.replace(old, new))
            return unified(old, new)
        case {"patchText": str(patch)} | {"patch": str(patch)}:
            return patch
        case _:
            return "\n".join(f"{name}: {value}" for name, value in args.items())


def _text(call: GuardedCall, name: str) -> str:
    args: Mapping[str, object] = call.args
    value = args.get(name)
    return value if isinstance(value, str) else ""
