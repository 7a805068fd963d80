"""`go-ent trust`: what a project's files would do, in plain words, and the user's yes to it."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from goent.composition.trusting import project_acts
from goent.config.trust.records import (
    Approvals,
    Record,
    all_records,
    approvals,
    decline,
    grant,
    read_record,
    revoke,
)
from goent.domain.question_text import visible
from goent.domain.trust import Act
from goent.domain.types import Value
from goent.frontends.cli.client import Trouble
from goent.frontends.cli.keys import somebody_is_there
from goent.frontends.cli.screen import say
from goent.frontends.cli.show import print_json, show_table
from goent.hardening import MARK
from goent.project import find_project

Standing = Literal["trusted", "new", "changed"]
WAITS = 1  # the exit code while something waits for a yes


class Told(Value, frozen=True, kw_only=True):
    """One thing that the project's files would do. `changed` are the parts that are not as they were.

    `made_of` names every setting and file that a yes covers.
    """

    place: str
    kind: str
    says: str
    standing: Standing
    made_of: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    before: str = ""


class Trust(Value, frozen=True, kw_only=True):
    """A project, and whether all of its files are followed."""

    project: str
    trusted: bool
    acts: tuple[Told, ...]


class Listed(Value, frozen=True, kw_only=True):
    """A project that something was said of."""

    project: str
    trusted_at: str
    acts: tuple[str, ...]


class TrustList(Value, frozen=True, kw_only=True):
    """All of them."""

    projects: tuple[Listed, ...]


class Revoked(Value, frozen=True, kw_only=True):
    """Whether there was anything to take back."""

    project: str
    revoked: bool


def look_at(paths: Sequence[Path], *, yes: bool, json: bool) -> int:
    """Show what waits for a yes, and take it."""
    project, named = _meant(paths)
    acts = _acts(project, *named)
    _tell(project, acts, json=json and not yes)
    missing = approvals(project, os.environ).missing(acts)
    if missing and (yes or (not json and _agreed(missing))):
        _allow(project, acts)
        missing = approvals(project, os.environ).missing(acts)
        if not json:
            say("\ntrusted" if not missing else "")
    if json and yes:
        _tell(project, acts, json=True)
    return WAITS if missing else 0


def take_back(paths: Sequence[Path], *, json: bool) -> int:
    """Forget what was said of a project."""
    project, _ = _meant(paths)
    gone = revoke(project, os.environ)
    if json:
        print_json(Revoked(project=str(project), revoked=gone))
    else:
        say(f"{project} is no longer trusted" if gone else f"{project} was not trusted")
    return 0


def list_trusted(*, json: bool) -> int:
    """Every project that something was said of."""
    found = tuple(
        Listed(
            project=record.project,
            trusted_at=record.trusted_at,
            acts=tuple(act.place for act in record.acts),
        )
        for record in all_records(os.environ)
    )
    if json:
        print_json(TrustList(projects=found))
    elif found:
        rows = ((each.project, each.trusted_at or "-", str(len(each.acts))) for each in found)
        show_table(("PROJECT", "SINCE", "ITEMS"), rows)
    else:
        say("no trusted projects; run `go-ent trust` in one to see what its files would do")
    return 0


def ask_for_trust(cwd: Path | None = None) -> None:
    """Ask the person at the terminal, once, about what waits for a yes."""
    if _is_worker():
        return
    here = (cwd or Path.cwd()).absolute()
    project = find_project(here)
    acts = _acts(project, here)
    missing = approvals(project, os.environ).missing(acts)
    record = read_record(project, os.environ)
    declined = set(record.declined) if record else set[str]()
    if not missing or all(act.digest in declined for act in missing):
        return
    _tell(project, acts, json=False)
    if _agreed(missing):
        _allow(project, acts)
    else:
        decline(project, os.environ, missing)
        say("not trusted: continuing without it. `go-ent trust` asks again")


def _meant(paths: Sequence[Path]) -> tuple[Path, list[Path]]:
    """The project, and the paths in it that were named."""
    if _is_worker():
        raise Trouble("workers cannot change what is trusted: run `go-ent trust` yourself", 2)
    named = [path.absolute() for path in paths]
    if missing := next((path for path in named if not path.exists()), None):
        raise Trouble(f"{str(missing)!r} does not exist", 2)
    start = named[0] if named else Path.cwd()
    return find_project(start if start.is_dir() else start.parent), named


def _is_worker() -> bool:
    """Whether a worker runs us: its mark is in our environment, or in that of whoever started us."""
    if os.environ.get(MARK):
        return True
    pid, needle = os.getppid(), f"{MARK}=".encode()
    with suppress(OSError, ValueError):  # where there is no /proc, or it is not ours to see
        while pid > 1:
            if any(each.startswith(needle) for each in _of_process(pid, "environ").split(b"\0")):
                return True
            pid = int(_of_process(pid, "stat").rpartition(b")")[2].split()[1])
    return False


def _of_process(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()


def _acts(project: Path, *named: Path) -> tuple[Act, ...]:
    return project_acts(project, os.environ, *named)


def _allow(project: Path, acts: tuple[Act, ...]) -> None:
    """Exactly what was shown, and what else was allowed and is not about the same places."""
    before = read_record(project, os.environ)
    shown = {act.place for act in acts}
    kept = [act for act in before.acts if act.place not in shown] if before else []
    grant(project, os.environ, (*kept, *acts))


def _agreed(missing: tuple[Act, ...]) -> bool:
    if not somebody_is_there():
        return False
    impossible = [act for act in missing if not act.digest]
    if len(impossible) == len(missing):
        return False
    sys.stdout.write("\nTrust this project? Your answer covers exactly what is shown above. [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _tell(project: Path, acts: tuple[Act, ...], *, json: bool) -> None:
    record = read_record(project, os.environ)
    approved = approvals(project, os.environ)
    told = tuple(_told(act, record, approved) for act in acts)
    waiting = [each for each in told if each.standing != "trusted"]
    if json:
        print_json(Trust(project=str(project), trusted=not waiting, acts=told))
        return
    say(_headline(project, told, waiting))
    for each in sorted(told, key=lambda one: one.standing == "trusted"):
        place = each.place.removeprefix(f"{project}/")
        say(f"\n{each.standing:8} {_line(place)}\n         {_line(each.says)}")
        if unnamed := [name for name in each.made_of if name not in f"{place} {each.says}"]:
            say(f"         made of: {_line(', '.join(unnamed))}")
        if each.before and each.before != each.says:
            say(f"         before: {_line(each.before)}")
        if each.changed:
            say(f"         changed files: {_line(', '.join(each.changed))}")


def _headline(project: Path, told: tuple[Told, ...], waiting: list[Told]) -> str:
    if not told:
        return f"{project}: nothing here needs your trust"
    if not waiting:
        return f"{project}: everything is trusted"
    if len(waiting) == 1:
        return f"{project}: 1 item is not trusted; until you allow it, it is ignored or refused"
    return f"{project}: {len(waiting)} items are not trusted; until you allow them, they are ignored or refused"


def _told(act: Act, record: Record | None, approved: Approvals) -> Told:
    earlier = next((one for one in record.acts if one.place == act.place), None) if record else None
    standing: Standing = (
        "trusted" if approved.cover(act) else "changed" if earlier is not None else "new"
    )
    changed: tuple[str, ...] = ()
    if earlier and standing == "changed":
        was = {part.name: part.digest for part in earlier.materials}
        now = {part.name: part.digest for part in act.materials}
        changed = tuple(sorted(name for name in was | now if was.get(name) != now.get(name)))
    return Told(
        place=act.place,
        kind=act.kind,
        says=act.says,
        standing=standing,
        made_of=tuple(part.name for part in act.materials),
        changed=changed,
        before=earlier.says if earlier and standing == "changed" else "",
    )


def _line(text: str) -> str:
    """A repository's words must not draw lines of their own."""
    return visible(text).replace("\n", "\\n")
