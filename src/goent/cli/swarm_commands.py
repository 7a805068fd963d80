"""The `go-ent swarm` group and its commands."""

import sys
import time
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from msgspec.structs import asdict, replace
from typer.core import TyperGroup

from goent.cli.command_options import (
    JsonOption,
    SwarmArgument,
    SwarmTasksArgument,
    ask_before_work,
    no_blank_commands,
)
from goent.cli.daemon_client import LAST, CommandError, DaemonClient, open_daemon_client
from goent.cli.display import print_json
from goent.cli.swarm_display import (
    is_complete,
    show_merged,
    show_swarm_status,
    show_swarm_summary,
    show_swarms,
    swarm_has_succeeded,
    task_failures,
)
from goent.cli.swarm_watcher import INTERRUPTED, open_swarm_watcher
from goent.cli.terminal import print_notice
from goent.domain.requests import MAX_WAIT_S
from goent.domain.swarm_messages import (
    SwarmCancelRequest,
    SwarmList,
    SwarmMergeReply,
    SwarmMergeRequest,
    SwarmRequest,
    SwarmResult,
    SwarmResultRequest,
    SwarmRetryRequest,
    SwarmSpawnRequest,
    SwarmsRequest,
    SwarmStatus,
    SwarmWaitRequest,
)
from goent.domain.types import Isolation, Method
from goent.system.plain_files import NotPlainFile, read_plain

if TYPE_CHECKING:
    from typer._click import Context


RUN_COMMAND: Final = "run"
HELP_OPTIONS: Final = ("-h", "--help")
SWARM_ID_PREFIX: Final = "s-"
STDIN_NAME: Final = "-"
MAX_TASK_BYTES: Final = 4_000_000


class FileOrCommandGroup(TyperGroup):
    """`swarm tasks.yaml` is short for `swarm run tasks.yaml`."""

    def parse_args(self, ctx: "Context", args: list[str]) -> list[str]:
        if args and not self._is_command(args[0]):
            args = [RUN_COMMAND, *args]
        return super().parse_args(ctx, args)

    def _is_command(self, word: str) -> bool:
        """Also one that is misspelt, unless there is such a file."""
        if word in self.commands or word in HELP_OPTIONS:
            return True
        return bool(get_close_matches(word, self.commands)) and not Path(word).exists()


def read_task_file(name: str) -> SwarmSpawnRequest:
    """The swarm that a file asks for, or `-` for what stdin says."""
    from goent.config.task_file import read_tasks  # noqa: PLC0415 (only here is YAML read)

    if name == STDIN_NAME and sys.stdin.isatty():
        print_notice("reading tasks from the terminal; Ctrl-D ends it")
    try:
        written = sys.stdin.buffer.read() if name == STDIN_NAME else _read_task_bytes(Path(name))
        text = written.decode("utf-8-sig")
    except OSError as error:
        why = f"cannot read {name!r}: {error.strerror}"
        raise CommandError(f"{why}; `go-ent swarm --help` tells what else there is", 2) from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{name!r} is not UTF-8 text (byte {error.start})", 2) from None
    return read_tasks(text, "stdin" if name == STDIN_NAME else name)


def _read_task_bytes(path: Path) -> bytes:
    if path.parts[:2] == ("/", "dev"):  # what the shell put there: `go-ent swarm <(make-tasks)`
        with path.open("rb") as stream:
            return stream.read(MAX_TASK_BYTES)
    try:
        return read_plain(path, MAX_TASK_BYTES)
    except NotPlainFile as error:
        raise CommandError(str(error), 2) from None


def find_swarm(asked: str, through: DaemonClient) -> str:
    """The id behind a full id, an unambiguous beginning of one, a name, or the word `last`."""
    swarms = through.call("swarm_list", SwarmsRequest(), SwarmList).swarms
    if asked == LAST:
        if not swarms:
            raise CommandError(
                "this project has no swarms yet: `go-ent swarm TASKS.yaml` makes one", 2
            )
        return swarms[0].swarm_id
    ids = [swarm.swarm_id for swarm in swarms]
    if asked in ids:
        return asked
    named = [swarm.swarm_id for swarm in swarms if swarm.swarm == asked]
    if named:
        return named[0]
    found = [one for one in ids if asked and one.startswith((asked, SWARM_ID_PREFIX + asked))]
    if len(found) > 1:
        raise CommandError(f"{asked!r} may be any of {', '.join(found)}: write more of it", 2)
    return found[0] if found else asked


def swarm_result(swarm: str, through: DaemonClient) -> SwarmResult:
    """All of it: at a terminal there is room."""
    request = SwarmResultRequest(swarm_id=swarm, whole=True)
    return through.call("swarm_result", request, SwarmResult)


OVERRIDES_PANEL = "Instead of what the file says"
AFTERWARDS_PANEL = "When all is over"
FAILED = 1
ENVIRONMENT_ERROR = 3

DetachOption = Annotated[
    bool, typer.Option("--detach", "-d", help="Print the swarm's id and leave it running.")
]


class SwarmRunResult(SwarmResult, frozen=True, kw_only=True):
    """What `swarm run --json` prints: the result, and what was merged if that was asked."""

    merged: SwarmMergeReply | None = None


def run(  # noqa: PLR0913 (each is an option)
    tasks: Annotated[
        str, typer.Argument(metavar="TASKS.yaml", help="A file of tasks; '-' reads stdin.")
    ],
    *,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, max=100, help="Workers at once.", rich_help_panel=OVERRIDES_PANEL),
    ] = None,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            metavar="USD", min=0.000001, help="What all may cost.", rich_help_panel=OVERRIDES_PANEL
        ),
    ] = None,
    provider: Annotated[
        str | None,
        typer.Option(
            help="For tasks that name neither provider nor model.", rich_help_panel=OVERRIDES_PANEL
        ),
    ] = None,
    isolation: Annotated[
        Isolation | None, typer.Option(help="Where workers work.", rich_help_panel=OVERRIDES_PANEL)
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge",
            help="Join the work on a branch and check it.",
            rich_help_panel=AFTERWARDS_PANEL,
        ),
    ] = False,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="Merge, and move your branch there.", rich_help_panel=AFTERWARDS_PANEL
        ),
    ] = False,
    detach: DetachOption = False,
    json: JsonOption = False,
) -> int:
    """Give the tasks of a file to workers, watch them, and see what came of it.

    Ctrl-C cancels the swarm and shows what was done; a second one leaves at once.
    Exits 0 if all tasks were completed and none was refuted (with --merge: and
    all merged and verified), 1 if not.
    """
    if detach and (merge or apply):
        raise CommandError("--merge and --apply wait for the end: leave out --detach", 2)
    request = _with_overrides(read_task_file(tasks), concurrency, budget_usd, provider, isolation)
    ask_before_work(json=json)
    with open_daemon_client() as through:
        begun = through.call("swarm_spawn", request, SwarmStatus)
        for warning in begun.warnings:
            print_notice(warning)
        if detach:
            return _show_detached(begun, json=json)
        return _follow_to_end(through, begun, merge=merge or apply, apply=apply, json=json)


def _with_overrides(
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
    swarm: SwarmArgument,
    tasks: SwarmTasksArgument = None,
    *,
    elsewhere: Annotated[
        bool, typer.Option("--elsewhere", help="With another provider than before.")
    ] = False,
    provider: Annotated[str | None, typer.Option(help="Insist on a provider.")] = None,
    model: Annotated[str | None, typer.Option(help="Insist on a model.")] = None,
    method: Annotated[Method | None, typer.Option(help="Insist on how it runs.")] = None,
    detach: DetachOption = False,
    json: JsonOption = False,
) -> int:
    """Give the tasks that failed to new workers, and watch the swarm again.

    Exits as `go-ent swarm run` does.
    """
    with open_daemon_client() as through:
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
        return _follow_to_end(through, begun, merge=False, apply=False, json=json)


def _follow_to_end(
    through: DaemonClient, begun: SwarmStatus, *, merge: bool, apply: bool, json: bool
) -> int:
    """Watch the swarm to its end, tell what came of it, and give the exit code."""
    found = begun.swarm_id
    with open_swarm_watcher(through, found, silent=json, owner=True) as watching:
        watching.watch(found)
        told = swarm_result(found, through)
    merges = merge and swarm_has_succeeded(told) and not watching.interrupted
    if not json:
        show_swarm_summary(told, merging=merges)
    if merge and not merges:
        print_notice(f"nothing was merged, for not all is done; later: go-ent swarm merge {found}")
    merged = None
    try:
        if merges:
            request = SwarmMergeRequest(swarm_id=found, apply=apply)
            merged = through.call("swarm_merge", request, SwarmMergeReply)
    finally:  # what was done is told even if it cannot be merged
        if json:
            print_json(msgspec.convert({**asdict(told), "merged": merged}, SwarmRunResult))
    if merged and not json:
        show_merged(merged)
    return INTERRUPTED if watching.interrupted else _exit_code(told, merged)


def _exit_code(told: SwarmResult, merged: SwarmMergeReply | None) -> int:
    if swarm_has_succeeded(told):
        return 0 if merged is None or is_complete(merged) else FAILED
    kinds = {failure.kind for failure in task_failures(told)}
    return ENVIRONMENT_ERROR if kinds and kinds <= {"environment", "internal"} else FAILED


def _show_detached(begun: SwarmStatus, *, json: bool) -> int:
    if json:
        print_json(begun)
        return 0
    print(begun.swarm_id, flush=True)
    if sys.stderr.isatty():
        print(f"go-ent swarm status -f {begun.swarm_id} shows it", file=sys.stderr)
    return 0


swarm = typer.Typer(
    cls=FileOrCommandGroup,
    no_args_is_help=True,
    subcommand_metavar="TASKS.yaml | COMMAND [ARGS]...",
    help="Give several tasks to workers at once, each in a folder of its own, and merge their work."
    "\n\nA first one: go-ent swarm tasks.yaml. It is short for go-ent swarm run tasks.yaml.",
)
swarm.command()(run)


@swarm.command()
def status(
    swarm: SwarmArgument,
    *,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until it is over; Ctrl-C leaves it alone.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Show how a swarm stands: its tasks, their steps and costs, open questions."""
    with open_daemon_client() as through:
        found = find_swarm(swarm, through)
        if follow:
            with open_swarm_watcher(through, found, silent=json, owner=False) as watching:
                now = watching.watch(found)
        else:
            now = through.call("swarm_status", SwarmRequest(swarm_id=found), SwarmStatus)
    if json:
        print_json(now)
    else:
        show_swarm_status(now)
    return 0


@swarm.command()
def wait(
    swarm: SwarmArgument,
    *,
    timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Give up after this long (default: never).", min=0),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Wait until every task of a swarm is over, or one asks something.

    Exits 0 if all were completed and none was refuted, 1 if not.
    """
    with open_daemon_client() as through:
        now = _wait(through, find_swarm(swarm, through), timeout)
    if json:
        print_json(now)
    else:
        show_swarm_status(now)
    return 0 if now.state == "completed" and swarm_has_succeeded(now) else FAILED


def _wait(through: DaemonClient, found: str, seconds: float | None) -> SwarmStatus:
    deadline = None if seconds is None else time.monotonic() + seconds
    while True:
        left = MAX_WAIT_S if deadline is None else deadline - time.monotonic()
        request = SwarmWaitRequest(swarm_id=found, timeout_s=min(MAX_WAIT_S, max(0.0, left)))
        now = through.call("swarm_wait", request, SwarmStatus)
        if now.state != "running":
            return now
        if deadline is not None and time.monotonic() >= deadline:
            print_notice(f"not done after {seconds:g} s")
            return now


@swarm.command()
def result(swarm: SwarmArgument, *, json: JsonOption = False) -> int:
    """Show what came of a swarm: evidence, changes, costs, conflicts, and how it would merge.

    Exits 0 if all tasks were completed and none was refuted, 1 if not.
    """
    with open_daemon_client() as through:
        told = swarm_result(find_swarm(swarm, through), through)
    if json:
        print_json(told)
    else:
        show_swarm_summary(told)
    return 0 if swarm_has_succeeded(told) else FAILED


swarm.command()(retry)


@swarm.command()
def cancel(
    swarm: SwarmArgument,
    tasks: SwarmTasksArgument = None,
    *,
    reason: Annotated[str, typer.Option(help="Why; kept in the journal.")] = "",
    json: JsonOption = False,
) -> int:
    """Stop what is under way and begin nothing more. What was done is kept."""
    with open_daemon_client() as through:
        found = find_swarm(swarm, through)
        request = SwarmCancelRequest(swarm_id=found, tasks=tuple(tasks or ()), reason=reason)
        now = through.call("swarm_cancel", request, SwarmStatus)
    if json:
        print_json(now)
    else:
        show_swarm_status(now)
    return 0


@swarm.command()
def merge(  # noqa: PLR0913 (each is an option)
    swarm: SwarmArgument,
    tasks: SwarmTasksArgument = None,
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
    json: JsonOption = False,
) -> int:
    """Join the finished work on one branch, run the verify commands on it, and tell what is left.

    Your checkout is not touched unless you pass --apply.
    Exits 1 if something was left out or refuted.
    """
    with open_daemon_client() as through:
        request = SwarmMergeRequest(
            swarm_id=find_swarm(swarm, through),
            tasks=tuple(tasks or ()),
            branch=branch,
            verify=() if no_verify else tuple(verify) if verify else None,
            dry_run=dry_run,
            apply=apply,
        )
        merged = through.call("swarm_merge", request, SwarmMergeReply)
    if json:
        print_json(merged)
    else:
        show_merged(merged, dry_run=dry_run)
    return 0 if is_complete(merged) else FAILED


@swarm.command("list")
def list_(*, json: JsonOption = False) -> int:
    """List the swarms of this project, newest first."""
    with open_daemon_client() as through:
        found = through.call("swarm_list", SwarmsRequest(), SwarmList)
    if json:
        print_json(found)
    else:
        show_swarms(found)
    return 0
