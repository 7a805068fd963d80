"""Works out which permissions an agent's tool call needs, and whether it had them.

An agent reports the kind and the input of a tool call, not the permission. A command is judged as
`bash` whatever its kind, a path outside the worker's directory or one that cannot be resolved also
as `external_directory`; an unknown tool needs a question.

Rules apply to what an agent asks. Afterwards, its reported calls are checked too, and the files of a
worker that must not change any.
"""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from msgspec.structs import replace

from goent.acp.agent_messages import ToolFields
from goent.acp.message_parts import AcpDiff
from goent.agents.open_questions import show_diff
from goent.agents.tool_subject import ABOUT_FILES, CallSubject, ToolData, call_text, read_subject
from goent.agents.worker_paths import ANYWHERE, OUTSIDE, WorkerPaths
from goent.domain.settings import PermissionRule
from goent.permissions.access_rules import AccessRequest, decide_access, oversight_level

_PERMISSIONS = {
    "execute": "bash",
    "edit": "edit",
    "delete": "edit",
    "move": "edit",
    "fetch": "webfetch",
    "read": "read",
    "search": "grep",
    "think": "think",
}
# For calls without a kind: names of tools that say enough.
_KINDS_BY_NAME = {"bash": "execute", "shell": "execute", "edit": "edit", "write": "edit"}
_CHANGING = frozenset({"edit", "tool"})  # an unknown tool may change files


def access_for_call(call: ToolFields, workdir: WorkerPaths) -> tuple[AccessRequest, ...]:
    """Everything that has to be allowed for the call; most often one permission."""
    if call.kind is None:
        call = replace(call, kind=_KINDS_BY_NAME.get((call.title or "").lower()))
    about = read_subject(call)
    permission = _permission(call, about)
    places = {path: workdir.resolve(path) for path in about.paths}
    away = workdir.outside_patterns(about.paths)
    if about.unconfined or _hides_its_paths(call, about, len(set(places.values()))):
        away.append(ANYWHERE)
    names = [workdir.from_checkout(place) if place else path for path, place in places.items()]
    guards = [workdir.guard_reason(path) for path in about.paths if permission in _CHANGING]
    reason = next(filter(None, guards), "")
    detail = _detail(about, call, workdir)
    found = [_access_request(permission, about, call, names, detail, reason)]
    if away:
        outside = AccessRequest(
            permission=OUTSIDE,
            patterns=tuple(dict.fromkeys(away)),
            always=tuple(_always_patterns(OUTSIDE, away, about)),
            exact=True,
            detail=detail,
        )
        found.insert(0, outside)
    return tuple(found)


def _hides_its_paths(call: ToolFields, about: CallSubject, places: int) -> bool:
    """Whether it is about files but names none, or only one end of a move."""
    if about.command or call.kind not in ABOUT_FILES:
        return False
    return places < (2 if call.kind == "move" else 1)


def _permission(call: ToolFields, about: CallSubject) -> str:
    if about.command:
        return "bash"
    if any(isinstance(part, AcpDiff) for part in call.content or ()):
        return "edit"  # whatever its kind
    if call.kind in _PERMISSIONS:
        return _PERMISSIONS[call.kind]
    return "tool"  # an address, like a command, may be input of any tool


def _access_request(
    permission: str,
    about: CallSubject,
    call: ToolFields,
    paths: Sequence[str],
    detail: str,
    reason: str,
) -> AccessRequest:
    patterns: tuple[str, ...]
    match permission:
        case "bash" if about.command and call.kind != "execute":
            # The tool may do anything with it: only a rule for every command allows that.
            patterns = (about.command, "*")
        case "bash":
            patterns = (about.command or _call_name(call),)
        case "webfetch":
            patterns = (about.url or "*",)
        case "tool":
            patterns = (_call_name(call),)
        case _:
            patterns = tuple(paths) or ("*",)
    return AccessRequest(
        permission=permission,
        patterns=patterns,
        always=(detail,)
        if permission == "bash" and about.command
        else tuple(_always_patterns(permission, patterns, about)),
        exact=True,
        detail=detail,
        reason=reason,
    )


def _call_name(call: ToolFields) -> str:
    """Its title, and its description if it has no readable input."""
    return " ".join(filter(None, (call.title, _description(call)))) or "*"


def _description(call: ToolFields) -> str:
    ended = call.status in ("completed", "failed")  # then the text is its output
    return "" if ended or ToolData.read(call.raw_input) else call_text(call)


def _always_patterns(permission: str, patterns: Sequence[str], about: CallSubject) -> Iterator[str]:
    """What an "always" covers: this very command, these very files, one site.

    There is none for a call that leaves something open: it would cover this call alone.
    """
    unknown = {ANYWHERE, "*"} & {*patterns}
    if unknown and not about.command:
        return
    for pattern in patterns:
        if pattern in unknown:
            yield f"{pattern} {about.command}"
        else:
            yield _site(pattern) if permission == "webfetch" else pattern


def _site(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    return f"{parts.scheme}://{parts.netloc}/*".lower() if parts.netloc else address


def _detail(about: CallSubject, call: ToolFields, workdir: WorkerPaths) -> str:
    """The whole call for a person: the command, the paths with the edits, or the tool's input."""
    diffs = [part for part in call.content or () if isinstance(part, AcpDiff)]
    if about.command and call.kind == "execute":
        lines = [workdir.command_in(about.place, about.command)]
    elif about.command or not (diffs or call.kind in _PERMISSIONS):
        lines = [" ".join(filter(None, (call.title, _input(call) or _description(call))))]
    else:
        lines = [", ".join(about.paths) or about.detail or _call_name(call)]
    for diff in diffs:
        lines += [diff.path] if len(diffs) > 1 else []
        lines.append(show_diff(diff.old_text or "", diff.new_text))
    return "\n".join(lines).strip("\n")


def _input(call: ToolFields) -> str:
    return bytes(call.raw_input).decode(errors="replace") if call.raw_input else ""


MAX_FILES = 20_000  # of a tree; a larger one is not checked
_ACTIONS = frozenset({"edit", "delete", "move", "execute"})
# Permissions that change no files, or only those they name.
_BOUNDED = frozenset({"edit", "read", "grep", "think", "webfetch", OUTSIDE})
# Of git's own folder, only what makes git act: reading commands write the rest.
_GIT_FILES = ("config", "hooks", "HEAD")

FileListing = Mapping[str, tuple[int, int, int]]


class TurnPermissions:
    """What was allowed in one turn, by call and in all."""

    def __init__(self) -> None:
        self._calls: dict[str, set[tuple[str, str]]] = {}
        self._vague: set[str] = set()
        self._matters: set[tuple[str, str]] = set()

    def add(self, call: ToolFields, about: Sequence[AccessRequest]) -> None:
        named = {(each.permission, p) for each in about for p in each.patterns}
        self._calls.setdefault(call.tool_call_id, set()).update(named)
        self._matters |= named
        subject = read_subject(call)
        if not (subject.command or subject.paths):
            self._vague.add(call.tool_call_id)

    def allows_call(self, name: str, access: AccessRequest) -> bool:
        """Whether the call was allowed to do this; one without command and paths was allowed anything."""
        if name in self._vague:
            return True
        named = {(access.permission, each) for each in access.patterns if each != "*"}
        return name in self._calls and named <= self._calls[name]

    @property
    def commands(self) -> bool:
        """Whether a call was allowed that may change any file."""
        return any(permission not in _BOUNDED for permission, _ in self._matters)

    def allows_edit(self, path: str) -> bool:
        """Whether this file, or one below this folder, may be changed."""
        named = (pattern for permission, pattern in self._matters if permission == "edit")
        return any(name == path or name.startswith(f"{path}/") for name in named)

    def covers(self, access: AccessRequest) -> bool:
        """Whether any call was allowed this: some agents ask under another call id."""
        return {(access.permission, each) for each in access.patterns} <= self._matters


def is_action(call: ToolFields) -> bool:
    """Whether it reports to change something or to run a command."""
    diff = any(isinstance(part, AcpDiff) for part in call.content or ())
    return diff or call.kind in _ACTIONS or bool(read_subject(call).command)


def find_unapproved(
    call: ToolFields,
    workdir: WorkerPaths,
    rules: Sequence[PermissionRule],
    permitted: TurnPermissions,
) -> AccessRequest | None:
    """What a completed call did without permission; None if nothing."""
    if not is_action(call):
        return None
    careful = oversight_level(rules) != "free"
    for access in access_for_call(call, workdir):
        if permitted.allows_call(call.tool_call_id, access):
            continue
        if access.permission == OUTSIDE and not careful:
            continue
        if decide_access(replace(access, reason=""), rules) != "allow" and not permitted.covers(
            access
        ):
            return access
    return None


def list_files(folder: Path) -> FileListing | None:
    """The files below it: inode, size and time of the last change. None if there are too many."""
    found: dict[str, tuple[int, int, int]] = {}
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        is_git = entry.name == ".git"
                        folders.append(Path(entry.path, "hooks" if is_git else ""))
                    _note(found, entry.path, folder)
        except OSError:
            continue  # it is gone or unreadable
        if len(found) > MAX_FILES:
            return None
    for name in _GIT_FILES:
        _note(found, str(folder / ".git" / name), folder)
    return found


def _note(found: dict[str, tuple[int, int, int]], path: str, folder: Path) -> None:
    try:
        state = os.lstat(path)
    except OSError:
        return
    if stat.S_ISDIR(
        state.st_mode
    ):  # its time reflects changes of its files, which are listed themselves
        found[os.path.relpath(path, folder)] = (state.st_ino, 0, 0)
    else:
        found[os.path.relpath(path, folder)] = (state.st_ino, state.st_size, state.st_mtime_ns)


def changed_names(before: FileListing, after: FileListing) -> tuple[str, ...]:
    """The names of files that were added, removed or changed."""
    names = before.keys() | after.keys()
    return tuple(sorted(name for name in names if before.get(name) != after.get(name)))
