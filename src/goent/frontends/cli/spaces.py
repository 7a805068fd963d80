"""`go-ent gc`: which folders of workers are kept, how big are they, and which may go?"""

from collections.abc import Iterator
from typing import Annotated

import typer

from goent.domain.replies import Cleared, SpaceList
from goent.domain.requests import ClearRequest, SpacesRequest
from goent.domain.workspaces import KeptSpace
from goent.frontends.cli.client import daemon
from goent.frontends.cli.options import Json
from goent.frontends.cli.screen import clean
from goent.frontends.cli.show import print_json, show_table
from goent.frontends.cli.words import size

HEADS = ("WORKER", "STATE", "SIZE", "BRANCH", "FOLDER")
WHY = {
    "unmerged": "unmerged: merge the branch, or `go-ent gc --remove WORKER` and lose the work",
    "broken": "broken: the folder or its branch is gone; `go-ent gc --remove WORKER` forgets it",
}


def gc(
    *,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORKER", help="Remove this worker's folder and branch, also if not merged."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only list them.")] = False,
    json: Json = False,
) -> int:
    """Remove the workers' folders that are clean or merged, and list the others."""
    with daemon() as through:
        if dry_run and not remove:
            found = through.call("spaces_list", SpacesRequest(), SpaceList)
            done = Cleared(removed=(), kept=found.spaces)
        elif dry_run:
            raise typer.BadParameter("--dry-run removes nothing: leave --remove out")
        else:
            request = ClearRequest(workers=tuple(remove or ()))
            done = through.call("spaces_clear", request, Cleared)
    if json:
        print_json(done)
    else:
        _show(done)
    return 0


def _show(done: Cleared) -> None:
    for space in done.removed:
        print(clean(_gone(space)))
    if not done.kept:
        print("no worker's folder is kept")
        return
    show_table(HEADS, map(_row, done.kept))
    for line in _reasons(done):
        print(line)


def _gone(space: KeptSpace) -> str:
    told = f"removed {space.worker} ({space.state}, {size(space.bytes)})"
    if space.state in ("clean", "merged") or not space.commit:
        return told
    if space.kind == "copy":
        return f"{told}: its work, commit {space.commit[:12]}, was in {space.repository}"
    return (
        f"{told}: until git prunes it, `git -C {space.repository} branch NAME {space.commit[:12]}` "
        "brings its work back"
    )


def _row(space: KeptSpace) -> tuple[str, ...]:
    return space.worker, space.state, size(space.bytes), space.branch, space.path


def _reasons(done: Cleared) -> Iterator[str]:
    total = sum(space.bytes for space in done.kept)
    yield f"{len(done.kept)} kept, {size(total)}"
    yield from (why for state, why in WHY.items() if any(s.state == state for s in done.kept))
