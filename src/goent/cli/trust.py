"""The command `go-ent trust`: shows what a project's files would do, and records the approval."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from goent.cli.command_options import JsonOption
from goent.cli.daemon_client import CommandError
from goent.cli.display import print_json, show_table
from goent.cli.terminal import is_interactive, print_now
from goent.config.trust_records import (
    Approvals,
    TrustRecord,
    all_records,
    decline,
    grant,
    read_approvals,
    read_record,
    revoke,
)
from goent.config.trust_survey import find_acts
from goent.domain.question_text import visible_text
from goent.domain.settings import Act
from goent.domain.types import Value
from goent.git.repository_config import git_acts
from goent.system.process_protection import MARK_VARIABLE
from goent.system.project_folders import find_project

TrustState = Literal["trusted", "new", "changed"]
APPROVAL_MISSING = 1  # the exit code while something is not trusted


class TrustItem(Value, frozen=True, kw_only=True):
    """One thing that the project's files would do. `changed` are the parts that changed since.

    `made_of` names every setting and file that the approval covers.
    """

    place: str
    kind: str
    says: str
    standing: TrustState
    made_of: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    before: str = ""


class ProjectTrust(Value, frozen=True, kw_only=True):
    """A project, and whether everything in it is trusted."""

    project: str
    trusted: bool
    acts: tuple[TrustItem, ...]


class TrustedProject(Value, frozen=True, kw_only=True):
    """A project with a trust record."""

    project: str
    trusted_at: str
    acts: tuple[str, ...]


class TrustList(Value, frozen=True, kw_only=True):
    """All projects with a trust record."""

    projects: tuple[TrustedProject, ...]


class TrustRevocation(Value, frozen=True, kw_only=True):
    """Whether there was anything to revoke."""

    project: str
    revoked: bool


def trust(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...", help="A project, folders of it, or suites (default: here)."
        ),
    ] = None,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Trust what is shown, without asking.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the projects you trust.")] = False,
    revoked: Annotated[bool, typer.Option("--revoke", help="Stop trusting this project.")] = False,
    json: JsonOption = False,
) -> int:
    """Review what this project's files would do, and allow it.

    Programs they start, addresses and the keys sent there, wider permissions, OpenCode plugins, git
    configuration, commands in evaluations. Trust covers exactly that content: changes are asked
    again. Exits 0 if everything is trusted, 1 if something is not.
    """
    if listed:
        return list_trusted(json=json)
    if revoked:
        return revoke_trust(paths or (), json=json)
    return review_trust(paths or (), yes=yes, json=json)


def review_trust(paths: Sequence[Path], *, yes: bool, json: bool) -> int:
    """Show what is not trusted, and ask for approval."""
    project, named = _named_project(paths)
    acts = project_acts(project, os.environ, *named)
    _show_acts(project, acts, json=json and not yes)
    missing = read_approvals(project, os.environ).missing(acts)
    if missing and (yes or (not json and _confirm(missing))):
        _allow(project, acts)
        missing = read_approvals(project, os.environ).missing(acts)
        if not json:
            print_now("\ntrusted" if not missing else "")
    if json and yes:
        _show_acts(project, acts, json=True)
    return APPROVAL_MISSING if missing else 0


def revoke_trust(paths: Sequence[Path], *, json: bool) -> int:
    """Delete a project's trust record."""
    project, _ = _named_project(paths)
    gone = revoke(project, os.environ)
    if json:
        print_json(TrustRevocation(project=str(project), revoked=gone))
    else:
        print_now(f"{project} is no longer trusted" if gone else f"{project} was not trusted")
    return 0


def list_trusted(*, json: bool) -> int:
    """List every project with a trust record."""
    found = tuple(
        TrustedProject(
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
        print_now("no trusted projects; run `go-ent trust` in one to see what its files would do")
    return 0


def ask_for_trust(cwd: Path | None = None) -> None:
    """Ask at the terminal, once, about what is not trusted yet."""
    if _is_worker():
        return
    here = (cwd or Path.cwd()).absolute()
    project = find_project(here)
    acts = project_acts(project, os.environ, here)
    missing = read_approvals(project, os.environ).missing(acts)
    record = read_record(project, os.environ)
    declined = set(record.declined) if record else set[str]()
    if not missing or all(act.digest in declined for act in missing):
        return
    _show_acts(project, acts, json=False)
    if _confirm(missing):
        _allow(project, acts)
    else:
        decline(project, os.environ, missing)
        print_now("not trusted: continuing without it. `go-ent trust` asks again")


def _named_project(paths: Sequence[Path]) -> tuple[Path, list[Path]]:
    """The project, and the given paths."""
    if _is_worker():
        raise CommandError("workers cannot change what is trusted: run `go-ent trust` yourself", 2)
    named = [path.absolute() for path in paths]
    if missing := next((path for path in named if not path.exists()), None):
        raise CommandError(f"{str(missing)!r} does not exist", 2)
    start = named[0] if named else Path.cwd()
    return find_project(start if start.is_dir() else start.parent), named


def _is_worker() -> bool:
    """Whether a worker runs this: its mark is in the environment of this process or an ancestor."""
    if os.environ.get(MARK_VARIABLE):
        return True
    pid, needle = os.getppid(), f"{MARK_VARIABLE}=".encode()
    with suppress(OSError, ValueError):  # no /proc, or no permission to read it
        while pid > 1:
            if any(
                each.startswith(needle) for each in _read_process_file(pid, "environ").split(b"\0")
            ):
                return True
            pid = int(_read_process_file(pid, "stat").rpartition(b")")[2].split()[1])
    return False


def _read_process_file(pid: int, what: str) -> bytes:
    return Path(f"/proc/{pid}/{what}").read_bytes()


def _allow(project: Path, acts: tuple[Act, ...]) -> None:
    """Trust exactly what was shown, and keep earlier approvals of other places."""
    before = read_record(project, os.environ)
    shown = {act.place for act in acts}
    kept = [act for act in before.acts if act.place not in shown] if before else []
    grant(project, os.environ, (*kept, *acts))


def _confirm(missing: tuple[Act, ...]) -> bool:
    if not is_interactive():
        return False
    if not any(act.digest for act in missing):
        return False
    sys.stdout.write("\nTrust this project? Your answer covers exactly what is shown above. [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _show_acts(project: Path, acts: tuple[Act, ...], *, json: bool) -> None:
    record = read_record(project, os.environ)
    approved = read_approvals(project, os.environ)
    told = tuple(_trust_item(act, record, approved) for act in acts)
    waiting = [each for each in told if each.standing != "trusted"]
    if json:
        print_json(ProjectTrust(project=str(project), trusted=not waiting, acts=told))
        return
    print_now(_trust_headline(project, told, waiting))
    for each in sorted(told, key=lambda one: one.standing == "trusted"):
        place = each.place.removeprefix(f"{project}/")
        print_now(f"\n{each.standing:8} {_single_line(place)}\n         {_single_line(each.says)}")
        if unnamed := [name for name in each.made_of if name not in f"{place} {each.says}"]:
            print_now(f"         made of: {_single_line(', '.join(unnamed))}")
        if each.before and each.before != each.says:
            print_now(f"         before: {_single_line(each.before)}")
        if each.changed:
            print_now(f"         changed files: {_single_line(', '.join(each.changed))}")


def _trust_headline(project: Path, told: tuple[TrustItem, ...], waiting: list[TrustItem]) -> str:
    if not told:
        return f"{project}: nothing here needs your trust"
    if not waiting:
        return f"{project}: everything is trusted"
    if len(waiting) == 1:
        return f"{project}: 1 item is not trusted; until you allow it, it is ignored or refused"
    return f"{project}: {len(waiting)} items are not trusted; until you allow them, they are ignored or refused"


def _trust_item(act: Act, record: TrustRecord | None, approved: Approvals) -> TrustItem:
    earlier = next((one for one in record.acts if one.place == act.place), None) if record else None
    standing: TrustState = (
        "trusted" if approved.covers(act) else "changed" if earlier is not None else "new"
    )
    changed: tuple[str, ...] = ()
    if earlier and standing == "changed":
        was = {part.name: part.digest for part in earlier.materials}
        now = {part.name: part.digest for part in act.materials}
        changed = tuple(sorted(name for name in was | now if was.get(name) != now.get(name)))
    return TrustItem(
        place=act.place,
        kind=act.kind,
        says=act.says,
        standing=standing,
        made_of=tuple(part.name for part in act.materials),
        changed=changed,
        before=earlier.says if earlier and standing == "changed" else "",
    )


def _single_line(text: str) -> str:
    """The text on one line: a repository's words must not imitate output."""
    return visible_text(text).replace("\n", "\\n")


SUITE_ENDINGS: Final = (".eval.yaml", ".eval.yml")
MOST_FOLDERS: Final = 5_000  # folders of a project that are searched for suites


def project_acts(project: Path, environ: Mapping[str, str], *named: Path) -> tuple[Act, ...]:
    """What settings, OpenCode's files, git's configuration and evaluations would do.

    `named` are folders that OpenCode would work in, and suites. Raises `UnsafeFolder`.
    """
    folders = [path for path in named if path.is_dir()]
    files = [path for path in named if not path.is_dir()]
    suites = dict.fromkeys((*files, *_suites(project)))
    return (
        *find_acts(project, environ, *folders),
        *git_acts(project, *folders),
        *_evaluations(tuple(suites), environ, project),
    )


def _evaluations(
    suites: tuple[Path, ...], environ: Mapping[str, str], project: Path
) -> tuple[Act, ...]:
    if not suites:
        return ()
    from goent.evals.attended.attended_order import acts_in_files  # noqa: PLC0415 (few projects have any)

    return acts_in_files(suites, environ, project)


def _suites(project: Path) -> Iterator[Path]:
    """Files named like suites."""
    for number, (folder, below, names) in enumerate(os.walk(project)):
        if number >= MOST_FOLDERS:
            return
        below[:] = [name for name in below if not name.startswith(".") and name != "node_modules"]
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(SUITE_ENDINGS))
