"""The commands `costs`, `gc`, `mcp` and `daemon`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from goent.cli.command_options import JsonOption
from goent.cli.daemon_client import CommandError, open_daemon_client
from goent.cli.daemon_control import hold_http_listener, stop_daemon
from goent.cli.display import print_json, print_reply, show_costs, show_table
from goent.cli.labels import byte_size
from goent.cli.terminal import strip_controls
from goent.daemon.daemon_connection import NoDaemon
from goent.daemon.shim import run_shim
from goent.domain.replies import ClearReply, Costs, DaemonInfo, SpaceList, StopReply
from goent.domain.requests import ClearRequest, CostsRequest, SpacesRequest
from goent.domain.workspace import KeptSpace


def costs(
    *,
    by: Annotated[
        Literal["provider", "model", "worker", "day"], typer.Option(help="One row for each.")
    ] = "provider",
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="Include all your projects.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Show what was spent. Unknown prices show as unknown, never as $0."""
    with open_daemon_client() as through:
        request = CostsRequest(by=by, project_only=not all_projects)
        report = through.call("cost_report", request, Costs)
    print_reply(report, show_costs, json=json)
    return 0


daemon_group = typer.Typer(
    name="daemon", no_args_is_help=True, help="The background process that serves this project."
)


@daemon_group.command("status")
def daemon_status(*, json: JsonOption = False) -> int:
    """Show the daemon that serves this project. Exits 1 if none runs."""
    try:
        with open_daemon_client(start=False) as through:
            info = through.call("daemon_status", None, DaemonInfo)
    except NoDaemon as none:
        if none.code != 1:
            raise
        if json:
            print_json(None)
        else:
            print(f"{none}; the next command starts one")
        return 1
    if json:
        print_json(info)
    else:
        print(f"go-ent {info.version}, process {info.pid}, {info.workers} workers")
        print(f"project {info.project}\nsocket  {info.socket}\nhttp    {info.http or '-'}")
    return 0


@daemon_group.command("stop")
def daemon_stop(
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Even if workers are busy, or the daemon hangs.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Stop the daemon of this project. Its workers end too; their work is kept."""
    stopped = stop_daemon(Path.cwd(), force=force)
    if json:
        print_json(StopReply(stopping=stopped))
    else:
        print("stopped" if stopped else "no daemon runs for this project")
    return 0


def mcp(
    *,
    embedded: Annotated[
        bool,
        typer.Option("--embedded", help="Without a daemon: run everything in this process."),
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve on loopback HTTP instead, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="For --http; 0 picks a free one.")
    ] = 0,
    json: JsonOption = False,
) -> int:
    """Serve MCP on stdin and stdout; this is what an MCP client starts.

    With --http the daemon serves it on 127.0.0.1 for as long as this command runs; it prints the
    address and the token that every request needs.
    """
    if http and embedded:
        raise CommandError("--http is served by the daemon: leave out --embedded", 2)
    if not http and (port or json):
        raise CommandError("--port and --json need --http", 2)
    if http:
        return hold_http_listener(Path.cwd(), port, json=json)
    if embedded:
        from goent.daemon.embedded_daemon import run_embedded  # noqa: PLC0415 (only here)

        return run_embedded(Path.cwd())

    return run_shim(Path.cwd())


SPACE_HEADS = ("WORKER", "STATE", "SIZE", "BRANCH", "FOLDER")
KEPT_REASONS = {
    "unmerged": "unmerged: merge the branch, or discard the work with `go-ent gc --remove WORKER`",
    "broken": "broken: the folder or its branch is gone; `go-ent gc --remove WORKER` forgets it",
}


def gc(
    *,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORKER", help="Remove this worker's folder and branch even if not merged."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only list them.")] = False,
    json: JsonOption = False,
) -> int:
    """Remove workers' folders that are clean or merged, and list the others."""
    with open_daemon_client() as through:
        if dry_run and not remove:
            found = through.call("spaces_list", SpacesRequest(), SpaceList)
            done = ClearReply(removed=(), kept=found.spaces)
        elif dry_run:
            raise typer.BadParameter("--dry-run removes nothing: leave --remove out")
        else:
            request = ClearRequest(workers=tuple(remove or ()))
            done = through.call("spaces_clear", request, ClearReply)
    print_reply(done, _show_spaces, json=json)
    return 0


def _show_spaces(done: ClearReply) -> None:
    for space in done.removed:
        print(strip_controls(_removed_line(space)))
    if not done.kept:
        print("no workers' folders are kept")
        return
    show_table(SPACE_HEADS, map(_space_row, done.kept))
    for line in _kept_lines(done):
        print(line)


def _removed_line(space: KeptSpace) -> str:
    told = f"removed {space.worker} ({space.state}, {byte_size(space.bytes)})"
    if space.state in ("clean", "merged") or not space.commit:
        return told
    if space.kind == "copy":
        return f"{told}: its work, commit {space.commit[:12]}, was in {space.repository}"
    return (
        f"{told}: until git prunes it, `git -C {space.repository} branch NAME {space.commit[:12]}` "
        "brings its work back"
    )


def _space_row(space: KeptSpace) -> tuple[str, ...]:
    return space.worker, space.state, byte_size(space.bytes), space.branch, space.path


def _kept_lines(done: ClearReply) -> Iterator[str]:
    total = sum(space.bytes for space in done.kept)
    yield f"{len(done.kept)} kept, {byte_size(total)}"
    yield from (
        why for state, why in KEPT_REASONS.items() if any(s.state == state for s in done.kept)
    )
