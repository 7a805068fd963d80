"""What is an agent's permission question about, in the words of our rules?

An agent tells the kind of a tool and what it is given, not the permission. A command is judged as
`bash` whatever its kind is said to be, a path outside the worker's directory is judged as
`external_directory` as well, and so is one that nobody could read; what nobody can tell the meaning
of is asked.
"""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from msgspec.structs import replace

from goent.acp.content import Diff
from goent.acp.updates import ToolFields
from goent.drivers.agent.subjects import ABOUT_FILES, Given, Subject, subject, told_text
from goent.drivers.diffs import unified
from goent.drivers.ground import Ground
from goent.drivers.questions import Matter

OUTSIDE = "external_directory"
ANYWHERE = "/*"  # what leaves the directory, or may, and does not say where to
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
# Of a call that does not tell its kind: names of tools that say enough.
_NAMED = {"bash": "execute", "shell": "execute", "edit": "edit", "write": "edit"}
_CHANGING = frozenset({"edit", "tool"})  # or may change, for nobody can tell


def matters(call: ToolFields, ground: Ground) -> tuple[Matter, ...]:
    """All that has to be allowed for the call; most often one."""
    if call.kind is None:
        call = replace(call, kind=_NAMED.get((call.title or "").lower()))
    about = subject(call)
    permission = _permission(call, about)
    places = {path: ground.real(path) for path in about.paths}
    away = [
        ground.around(place) if place else ANYWHERE
        for place in places.values()
        if not (place and ground.holds(place))
    ]
    if about.unconfined or _untold(call, about, len(set(places.values()))):
        away.append(ANYWHERE)
    names = [ground.shown(place) if place else path for path, place in places.items()]
    guards = [ground.guard(path) for path in about.paths if permission in _CHANGING]
    reason = next(filter(None, guards), "")
    detail = _detail(about, call, ground)
    found = [_matter(permission, about, call, names, detail, reason)]
    if away:
        outside = Matter(
            permission=OUTSIDE,
            patterns=tuple(dict.fromkeys(away)),
            always=tuple(_always(OUTSIDE, away, about)),
            exact=True,
            detail=detail,
        )
        found.insert(0, outside)
    return tuple(found)


def _untold(call: ToolFields, about: Subject, places: int) -> bool:
    """Whether it is about files, and does not tell which, or tells one end of a move."""
    if about.command or call.kind not in ABOUT_FILES:
        return False
    return places < (2 if call.kind == "move" else 1)


def _permission(call: ToolFields, about: Subject) -> str:
    if about.command:
        return "bash"
    if any(isinstance(part, Diff) for part in call.content or ()):
        return "edit"  # whatever its kind is said to be
    if call.kind in _PERMISSIONS:
        return _PERMISSIONS[call.kind]
    return "tool"  # an address, like a command, may be what some other tool is given


def _matter(
    permission: str,
    about: Subject,
    call: ToolFields,
    paths: Sequence[str],
    detail: str,
    reason: str,
) -> Matter:
    patterns: tuple[str, ...]
    match permission:
        case "bash" if about.command and call.kind != "execute":
            # Who knows what the tool does with it: only a rule for every command allows that.
            patterns = (about.command, "*")
        case "bash":
            patterns = (about.command or _told(call),)
        case "webfetch":
            patterns = (about.url or "*",)
        case "tool":
            patterns = (_told(call),)
        case _:
            patterns = tuple(paths) or ("*",)
    return Matter(
        permission=permission,
        patterns=patterns,
        always=(detail,)
        if permission == "bash" and about.command
        else tuple(_always(permission, patterns, about)),
        exact=True,
        detail=detail,
        reason=reason,
    )


def _told(call: ToolFields) -> str:
    """What it is called; and what it says of itself, where that is all there is to know."""
    return " ".join(filter(None, (call.title, _words(call)))) or "*"


def _words(call: ToolFields) -> str:
    ended = call.status in ("completed", "failed")  # then the text is what came of it
    return "" if ended or Given.read(call.raw_input) else told_text(call)


def _always(permission: str, patterns: Sequence[str], about: Subject) -> Iterator[str]:
    """What a lasting yes covers: this very command, these very files, one site.

    Where something is not told, it would cover this call alone: then there is none.
    """
    untold = {ANYWHERE, "*"} & {*patterns}
    if untold and not about.command:
        return
    for pattern in patterns:
        if pattern in untold:
            yield f"{pattern} {about.command}"
        else:
            yield _site(pattern) if permission == "webfetch" else pattern


def _site(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        return address
    return f"{parts.scheme}://{parts.netloc}/*".lower() if parts.netloc else address


def _detail(about: Subject, call: ToolFields, ground: Ground) -> str:
    """For a person, whole: the command, or the paths and the edits, or the tool and all that it is given."""
    diffs = [part for part in call.content or () if isinstance(part, Diff)]
    if about.command and call.kind == "execute":
        lines = [ground.command_in(about.place, about.command)]
    elif about.command or not (diffs or call.kind in _PERMISSIONS):
        lines = [" ".join(filter(None, (call.title, _input(call) or _words(call))))]
    else:
        lines = [", ".join(about.paths) or about.detail or _told(call)]
    for diff in diffs:
        lines += [diff.path] if len(diffs) > 1 else []
        lines.append(unified(diff.old_text or "", diff.new_text))
    return "\n".join(lines).strip("\n")


def _input(call: ToolFields) -> str:
    return bytes(call.raw_input).decode(errors="replace") if call.raw_input else ""
