"""How is it told to a person what goes together, and what collides?"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from goent.domain.swarms import LeftOver, SwarmMerged
from goent.domain.workspaces import Conflict, ConflictKind
from goent.frontends.cli.screen import clean, print_text
from goent.frontends.cli.show import checked, show_rows

if TYPE_CHECKING:
    from rich.text import Text

# The worst first.
KINDS: Final[Mapping[ConflictKind, str]] = {
    "hunk_conflict": "the same lines, changed differently",
    "delete_modify": "deleted by one, changed by another",
    "rename": "renamed by one, changed or renamed by another",
    "binary": "no text, and changed by several",
    "mode": "made executable by one and not by another",
    "semantic": "merges, but a verify command fails on the merge",
    "file_overlap": "the same file, edited by several",
}
MARKER: Final = 7  # characters of a conflict marker
SIDES: Final[Mapping[str, str]] = {
    "<" * MARKER: "green",
    "|" * MARKER: "dim",
    "=" * MARKER: "cyan",
    ">" * MARKER: "",
}
DIFF: Final[Mapping[str, str]] = {"+": "green", "-": "red", "@": "cyan"}
SHORT_COMMIT: Final = 10


def is_whole(merged: SwarmMerged) -> bool:
    """Nothing was left out, and no check failed."""
    return not merged.left and merged.evidence != "refuted"


def show_merged(merged: SwarmMerged, *, dry_run: bool = False) -> None:
    """What is on the branch now, what the checks said, and what is left."""
    print_text(*_headline(merged, dry_run=dry_run))
    rows = [(" " if at else "verify", checked(check)) for at, check in enumerate(merged.verify)]
    rows.append(("applied", f"{merged.applied} is there now" if merged.applied else ""))
    rows += [(" " if at else "note", note) for at, note in enumerate(merged.notes)]
    show_rows(rows)
    show_conflicts(merged.conflicts)
    show_left(merged.left)
    if merged.branch and merged.merged and not merged.applied and not dry_run:
        steps = [(f"git diff HEAD...{merged.branch}", "see it")]
        if merged.evidence != "refuted":
            steps.append((f"git merge {merged.branch}", "take it"))
        show_next(steps)


def _headline(merged: SwarmMerged, *, dry_run: bool) -> tuple[str, str]:
    done = "would merge" if dry_run else "merged"
    if not merged.merged:
        return f"✗ {done} nothing", "bold red"
    where = f" into {merged.branch}" if merged.branch else ""
    commit = f" ({merged.commit[:SHORT_COMMIT]})" if merged.commit else ""
    verdict = "" if dry_run else f", {merged.evidence or 'not checked'}"
    said = f"{done} {', '.join(merged.merged)}{where}{commit}{verdict}"
    if merged.evidence == "refuted":
        return f"✗ {said}", "bold red"
    if not dry_run and merged.evidence != "verified":
        return f"~ {said}", "bold"
    return f"✓ {said}", "bold yellow" if merged.left else "bold green"


def show_conflicts(conflicts: Sequence[Conflict]) -> None:
    """Apart by kind, each with its hunks."""
    for kind, meaning in KINDS.items():
        alike = [conflict for conflict in conflicts if conflict.kind == kind]
        if alike:
            print_text(f"\n{kind}: {meaning}", "dim" if kind == "file_overlap" else "bold red")
        for conflict in alike:
            detail = f": {conflict.detail}" if conflict.detail else ""
            print_text(f"  {conflict.path or '(all)'} ({', '.join(conflict.tasks)}){detail}")
            for hunk in conflict.hunks:
                print_text(hunk_text(hunk))


def hunk_text(hunk: str) -> "Text":
    """Each side of a conflict in a colour of its own; lines of a diff as in a diff."""
    from rich.text import Text  # noqa: PLC0415 (rich is loaded only where something is drawn)

    drawn: list[Text] = []
    side = ""
    for line in clean(hunk).rstrip("\n").split("\n"):
        marker = line[:MARKER]
        side = SIDES.get(marker, side)
        style = "bold" if marker in SIDES else side or DIFF.get(line[:1], "")
        drawn.append(Text(f"    {line}", style))
    return Text("\n").join(drawn)


def show_left(left: Sequence[LeftOver]) -> None:
    """What is not in the merge, and exactly what to do about it."""
    plain: dict[str, list[str]] = {}
    for one in left:
        if not one.instructions:
            plain.setdefault(one.reason, []).append(one.task)
            continue
        print_text(f"left out: {one.task}: {one.reason}", "yellow")
        for line in one.instructions.splitlines():
            print_text(f"    {line}")
    for reason, tasks in plain.items():
        print_text(f"left out: {', '.join(tasks)}: {reason}", "yellow")


def show_next(steps: Sequence[tuple[str, str]]) -> None:
    """Commands, and what each is for."""
    if not steps:
        return
    print_text("\nnext:")
    widest = max(len(command) for command, _ in steps)
    for command, why in steps:
        print_text(f"  {command:<{widest}}  {why}")
