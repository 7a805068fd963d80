"""`swarm run` and `swarm retry`: give tasks to workers, watch them, and tell what came of it."""

import sys
from typing import Annotated

import msgspec
import typer
from msgspec.structs import asdict, replace

from goent.domain.swarms import (
    SwarmMerged,
    SwarmMergeRequest,
    SwarmResult,
    SwarmRetryRequest,
    SwarmSpawnRequest,
    SwarmStatus,
)
from goent.domain.types import Isolation, Method
from goent.frontends.cli.client import Daemon, Trouble, daemon
from goent.frontends.cli.options import Json, Swarm, SwarmTasks
from goent.frontends.cli.project import ask_before_work
from goent.frontends.cli.screen import complain
from goent.frontends.cli.show import print_json
from goent.frontends.cli.swarm.merging import is_whole, show_merged
from goent.frontends.cli.swarm.summary import is_done, show_summary, troubles
from goent.frontends.cli.swarm.watching import INTERRUPTED, watcher
from goent.frontends.cli.swarm.words import find_swarm, read_task_file, result_of

BOUNDS = "Instead of what the file says"
AFTER = "When all is over"
FAILED = 1
ENVIRONMENT = 3

Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Print the swarm's id and leave it running.")
]


class Ended(SwarmResult, frozen=True, kw_only=True):
    """What `swarm run --json` prints: the result, and what was merged if that was asked."""

    merged: SwarmMerged | None = None


def run(  # noqa: PLR0913 (each is an option)
    tasks: Annotated[
        str, typer.Argument(metavar="TASKS.yaml", help="A file of tasks; '-' reads stdin.")
    ],
    *,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=100, help="Workers at once.", rich_help_panel=BOUNDS)
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            metavar="USD", min=0.000001, help="What all may cost.", rich_help_panel=BOUNDS
        ),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(
            help="For tasks that name neither provider nor model.", rich_help_panel=BOUNDS
        ),
    ] = None,
    isolation: Annotated[
        Isolation | None, typer.Option(help="Where workers work.", rich_help_panel=BOUNDS)
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="Join the work on a branch and check it.", rich_help_panel=AFTER
        ),
    ] = False,
    apply: Annotated[
        bool,
        typer.Option("--apply", help="Merge, and move your branch there.", rich_help_panel=AFTER),
    ] = False,
    detach: Detach = False,
    json: Json = False,
) -> int:
    """Give the tasks of a file to workers, watch them, and see what came of it.

    Ctrl-C cancels the swarm and shows what was done; a second one leaves at once.
    Exits 0 if all tasks were completed and none was refuted (with --merge: and
    all merged and verified), 1 if not.
    """
    if detach and (merge or apply):
        raise Trouble("--merge and --apply wait for the end: leave out --detach", 2)
    request = _instead(read_task_file(tasks), concurrency, budget_usd, provider, isolation)
    ask_before_work(json=json)
    with daemon() as through:
        begun = through.call("swarm_spawn", request, SwarmStatus)
        for warning in begun.warnings:
            complain(warning)
        if detach:
            return _show_detached(begun, json=json)
        return _see_through(through, begun, merge=merge or apply, apply=apply, json=json)


def _instead(
    request: SwarmSpawnRequest,
    concurrency: int | None,
    budget_usd: float | None,
    provider: str | None,
    isolation: Isolation | None,
) -> SwarmSpawnRequest:
    """What the file says, but for what was said at the terminal."""
    return replace(
        request,
        concurrency=concurrency or request.concurrency,
        budget_usd=budget_usd or request.budget_usd,
        isolation=isolation or request.isolation,
        tasks=tuple(
            task if task.provider or task.model or task.race else replace(task, provider=provider)
            for task in request.tasks
        ),
    )


def retry(  # noqa: PLR0913 (each is an option)
    swarm: Swarm,
    tasks: SwarmTasks = None,
    *,
    elsewhere: Annotated[
        bool, typer.Option("--elsewhere", help="With another provider than before.")
    ] = False,
    provider: Annotated[str | None, typer.Option(help="Insist on a provider.")] = None,
    model: Annotated[str | None, typer.Option(help="Insist on a model.")] = None,
    method: Annotated[Method | None, typer.Option(help="Insist on how it runs.")] = None,
    detach: Detach = False,
    json: Json = False,
) -> int:
    """Give the tasks that failed to new workers, and watch the swarm again.

    Exits as `go-ent swarm run` does.
    """
    with daemon() as through:
        request = SwarmRetryRequest(
            swarm_id=find_swarm(swarm, through),
            tasks=tuple(tasks or ()),
            provider=provider,
            model=model,
            method=method,
            elsewhere=elsewhere,
        )
        begun = through.call("swarm_retry", request, SwarmStatus)
        if detach:
            return _show_detached(begun, json=json)
        return _see_through(through, begun, merge=False, apply=False, json=json)


def _see_through(
    through: Daemon, begun: SwarmStatus, *, merge: bool, apply: bool, json: bool
) -> int:
    """Watch the swarm to its end, tell what came of it, and give the exit code."""
    found = begun.swarm_id
    with watcher(through, found, silent=json, owner=True) as watching:
        watching.watch(found)
        told = result_of(found, through)
    merges = merge and is_done(told) and not watching.interrupted
    if not json:
        show_summary(told, merging=merges)
    if merge and not merges:
        complain(f"nothing was merged, for not all is done; later: go-ent swarm merge {found}")
    merged = None
    try:
        if merges:
            request = SwarmMergeRequest(swarm_id=found, apply=apply)
            merged = through.call("swarm_merge", request, SwarmMerged)
    finally:  # what was done is told even if it cannot be merged
        if json:
            print_json(msgspec.convert({**asdict(told), "merged": merged}, Ended))
    if merged and not json:
        show_merged(merged)
    return INTERRUPTED if watching.interrupted else _exit_code(told, merged)


def _exit_code(told: SwarmResult, merged: SwarmMerged | None) -> int:
    if is_done(told):
        return 0 if merged is None or is_whole(merged) else FAILED
    kinds = {failure.kind for failure in troubles(told)}
    return ENVIRONMENT if kinds and kinds <= {"environment", "internal"} else FAILED


def _show_detached(begun: SwarmStatus, *, json: bool) -> int:
    if json:
        print_json(begun)
        return 0
    print(begun.swarm_id, flush=True)
    if sys.stderr.isatty():
        print(f"go-ent swarm status -f {begun.swarm_id} shows it", file=sys.stderr)
    return 0
