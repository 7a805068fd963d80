"""`go-ent swarm` and its commands: what can be asked of the swarms that there are?"""

import time
from typing import Annotated

import typer

from goent.domain.requests import MAX_WAIT_S
from goent.domain.swarms import (
    SwarmCancelRequest,
    SwarmList,
    SwarmMerged,
    SwarmMergeRequest,
    SwarmRequest,
    SwarmsRequest,
    SwarmStatus,
    SwarmWaitRequest,
)
from goent.frontends.cli.client import Daemon, daemon
from goent.frontends.cli.options import Json, Swarm, SwarmTasks, no_blank_commands
from goent.frontends.cli.screen import complain
from goent.frontends.cli.show import print_json
from goent.frontends.cli.swarm.giving import retry, run
from goent.frontends.cli.swarm.merging import is_whole, show_merged
from goent.frontends.cli.swarm.summary import is_done, show_status, show_summary, show_swarms
from goent.frontends.cli.swarm.watching import watcher
from goent.frontends.cli.swarm.words import FileOrCommand, find_swarm, result_of

FAILED = 1

swarm = typer.Typer(
    cls=FileOrCommand,
    no_args_is_help=True,
    subcommand_metavar="TASKS.yaml | COMMAND [ARGS]...",
    help="Give several tasks to workers at once, each in a folder of its own, and merge their work."
    "\n\nA first one: go-ent swarm tasks.yaml. It is short for go-ent swarm run tasks.yaml.",
)
swarm.command()(run)


@swarm.command()
def status(
    swarm: Swarm,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until it is over; Ctrl-C leaves it alone.")
    ] = False,
    json: Json = False,
) -> int:
    """Show how a swarm stands: its tasks, their steps and costs, open questions."""
    with daemon() as through:
        found = find_swarm(swarm, through)
        if follow:
            with watcher(through, found, silent=json, owner=False) as watching:
                now = watching.watch(found)
        else:
            now = through.call("swarm_status", SwarmRequest(swarm_id=found), SwarmStatus)
    if json:
        print_json(now)
    else:
        show_status(now)
    return 0


@swarm.command()
def wait(
    swarm: Swarm,
    *,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Give up after this long (default: never).", min=0),
    ] = None,
    json: Json = False,
) -> int:
    """Wait until every task of a swarm is over, or one asks something.

    Exits 0 if all were completed and none was refuted, 1 if not.
    """
    with daemon() as through:
        now = _wait(through, find_swarm(swarm, through), timeout)
    if json:
        print_json(now)
    else:
        show_status(now)
    return 0 if now.state == "completed" and is_done(now) else FAILED


def _wait(through: Daemon, found: str, seconds: float | None) -> SwarmStatus:
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        left = MAX_WAIT_S if deadline is None else deadline - time.monotonic()
        request = SwarmWaitRequest(swarm_id=found, timeout_s=min(MAX_WAIT_S, max(0.0, left)))
        now = through.call("swarm_wait", request, SwarmStatus)
        if now.state != "running":
            return now
        if deadline is not None and time.monotonic() >= deadline:
            complain(f"not done after {seconds:g} s")
            return now


@swarm.command()
def result(swarm: Swarm, *, json: Json = False) -> int:
    """Show what came of a swarm: evidence, changes, costs, conflicts, and how it would merge.

    Exits 0 if all tasks were completed and none was refuted, 1 if not.
    """
    with daemon() as through:
        told = result_of(find_swarm(swarm, through), through)
    if json:
        print_json(told)
    else:
        show_summary(told)
    return 0 if is_done(told) else FAILED


swarm.command()(retry)


@swarm.command()
def cancel(
    swarm: Swarm,
    tasks: SwarmTasks = None,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept in the journal.")] = "",
    json: Json = False,
) -> int:
    """Stop what is under way and begin nothing more. What was done is kept."""
    with daemon() as through:
        found = find_swarm(swarm, through)
        request = SwarmCancelRequest(swarm_id=found, tasks=tuple(tasks or ()), reason=reason)
        now = through.call("swarm_cancel", request, SwarmStatus)
    if json:
        print_json(now)
    else:
        show_status(now)
    return 0


@swarm.command()
def merge(  # noqa: PLR0913 (each is an option)
    swarm: Swarm,
    tasks: SwarmTasks = None,
    *,
    branch: Annotated[
        str | None, typer.Option(help="Where to (default: go-ent/<swarm>/merged).")
    ] = None,
    verify: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COMMAND",
            callback=no_blank_commands,
            help="Instead of the swarm's own commands; may be repeated.",
        ),
    ] = None,
    no_verify: Annotated[bool, typer.Option("--no-verify", help="Check nothing.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only tell what would be merged.")
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="Also move your branch there, if all is committed.")
    ] = False,
    json: Json = False,
) -> int:
    """Join the finished work on one branch, run the verify commands on it, and tell what is left.

    Your checkout is not touched unless you pass --apply.
    Exits 1 if something was left out or refuted.
    """
    with daemon() as through:
        request = SwarmMergeRequest(
            swarm_id=find_swarm(swarm, through),
            tasks=tuple(tasks or ()),
            branch=branch,
            verify=() if no_verify else tuple(verify) if verify else None,
            dry_run=dry_run,
            apply=apply,
        )
        merged = through.call("swarm_merge", request, SwarmMerged)
    if json:
        print_json(merged)
    else:
        show_merged(merged, dry_run=dry_run)
    return 0 if is_whole(merged) else FAILED


@swarm.command("list")
def list_(*, json: Json = False) -> int:
    """List the swarms of this project, newest first."""
    with daemon() as through:
        found = through.call("swarm_list", SwarmsRequest(), SwarmList)
    if json:
        print_json(found)
    else:
        show_swarms(found)
    return 0
