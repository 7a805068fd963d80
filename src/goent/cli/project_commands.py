"""Commands about the project and go-ent itself: costs, doctor, init, trust, daemon, mcp, acp, gc."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import typer

from goent.cli.command_options import JsonOption
from goent.cli.daemon_client import CommandError, open_daemon_client
from goent.cli.display import print_json, show_costs, show_table
from goent.cli.labels import byte_size
from goent.cli.terminal import strip_controls
from goent.daemon.daemon_connection import NoDaemon
from goent.domain.replies import ClearReply, Costs, DaemonInfo, SpaceList, StopReply
from goent.domain.requests import ClearRequest, CostsRequest, SpacesRequest
from goent.domain.types import Value
from goent.domain.workspace import KeptSpace
from goent.system.plain_files import NotPlainFile
from goent.system.project_folders import UnsafeFolder, find_project


def costs(
    *,
    by: Annotated[
        Literal["provider", "model", "worker", "day"], typer.Option(help="What makes a line.")
    ] = "provider",
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="Not of this project alone.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Show what was spent. A price that is not known is said to be so, never counted as 0."""
    with open_daemon_client() as through:
        request = CostsRequest(by=by, project_only=not all_projects)
        report = through.call("cost_report", request, Costs)
    if json:
        print_json(report)
    else:
        show_costs(report)
    return 0


def doctor(*, json: JsonOption = False) -> int:
    """Check what go-ent needs, and say how to mend what is missing. Needs no daemon.

    Exits 0 if go-ent can work here, 2 for a mistake in its settings, 3 if something is missing.
    """
    from goent.cli.doctor import examine  # noqa: PLC0415 (only this command needs it)

    diagnosis = examine(Path.cwd(), os.environ)
    if json:
        print_json(diagnosis)
        return diagnosis.exit_code
    from goent.cli.doctor import show_diagnosis  # noqa: PLC0415 (the same)

    show_diagnosis(diagnosis)
    return diagnosis.exit_code


def init(
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a go-ent entry that .mcp.json already has.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Set this project up: settings in .goent/, and go-ent as an MCP server in .mcp.json.

    Settings that exist are left alone, and so are the other servers.
    """
    from goent.cli.setup import add_mcp_server  # noqa: PLC0415 (the same)
    from goent.config.starter_files import check_writable, write_starter  # noqa: PLC0415 (only this command writes settings)
    from goent.config.trust_survey import trust_starter  # noqa: PLC0415 (the same)

    project = find_project(Path.cwd())
    servers = project / ".mcp.json"
    try:
        check_writable(project)  # first: what is refused has changed nothing
        entered = add_mcp_server(servers, replace=force)
        written = write_starter(project)
        trust_starter(project, os.environ, written)
    except UnsafeFolder:
        raise
    except NotPlainFile as error:
        raise CommandError(str(error), 2) from error
    except OSError as error:
        raise CommandError(f"cannot write in {str(project)!r}: {error}", 3) from error
    changed = [str(path.relative_to(project)) for path in (*written, *([servers] * entered))]
    if json:
        print_json(InitResult(project=str(project), written=tuple(changed)))
        return 0
    for name in changed or ["nothing: everything is there already"]:
        print(f"wrote {name}" if changed else name)
    print(
        f"\nNext, in {project}:\n"
        "  go-ent doctor       what is there, what is missing\n"
        "  go-ent providers    the models your keys give you\n"
        "  go-ent trust        allow what you wrote in .goent/\n"
        '  go-ent run "…"      a first task\n'
        "Claude Code finds go-ent by .mcp.json when it starts in this folder."
    )
    return 0


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
    from goent.cli.trust import list_trusted, review_trust, revoke_trust  # noqa: PLC0415 (only this command)

    if listed:
        return list_trusted(json=json)
    if revoked:
        return revoke_trust(paths or (), json=json)
    return review_trust(paths or (), yes=yes, json=json)


class InitResult(Value, frozen=True, kw_only=True):
    """What `init` wrote."""

    project: str
    written: tuple[str, ...]


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


def daemon_stop(
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Even if workers are busy or it is stuck.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """End the daemon of this project. Workers end with it, what they did is kept."""
    from goent.cli.daemon_control import stop_daemon  # noqa: PLC0415 (only this command)

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
        typer.Option("--embedded", help="Without a daemon: everything lives in this process."),
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="On loopback HTTP instead, until Ctrl-C.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="For --http; 0 is any that is free.")
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
        raise CommandError("--port and --json go with --http", 2)
    if http:
        from goent.cli.daemon_control import hold_http_listener  # noqa: PLC0415 (only here)

        return hold_http_listener(Path.cwd(), port, json=json)
    if embedded:
        from goent.daemon.embedded_daemon import run_embedded  # noqa: PLC0415 (only here)

        return run_embedded(Path.cwd())
    from goent.daemon.shim import run_shim  # noqa: PLC0415 (only here)

    return run_shim(Path.cwd())


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the sample project behind to look at.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """See go-ent work: three workers at once on scripted models. Needs OpenCode, but no key."""
    from goent.cli.demo import run_demo  # noqa: PLC0415 (only here)

    return run_demo(keep=keep, json=json)


def acp(
    *,
    model: Annotated[
        str,
        typer.Option(
            help="haiku, sonnet, a provider's name or backend/model; auto lets the task decide."
        ),
    ] = "auto",
    mode: Annotated[str, typer.Option(help="ask, accept-edits or plan.")] = "ask",
    allowed_tools: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Offer and run only these, e.g. Read,Grep,Glob; '': none."
        ),
    ] = None,
    login: Annotated[
        bool, typer.Option("--login", help="Say which models it can ask, or how to give it a key.")
    ] = False,
) -> int:
    """Serve an editor (any ACP client) on stdin and stdout with go-ent's own agent."""
    from goent.acp_server import acp_command  # noqa: PLC0415 (only here)

    if login:
        from goent.cli.setup import log_in  # noqa: PLC0415 (only here)

        return log_in()

    if mode not in acp_command.AGENT_MODES:
        raise CommandError(
            f"there is no mode {mode!r}; one of {', '.join(acp_command.AGENT_MODES)}", 2
        )
    names = None if allowed_tools is None else acp_command.tool_names(allowed_tools)
    if names is not None and (strange := acp_command.unknown_tool(names)):
        known = ", ".join(acp_command.AGENT_TOOLS)
        raise CommandError(f"there is no tool {strange!r}; one of {known}, or mcp__SERVER__TOOL", 2)
    return acp_command.run_acp(acp_command.AgentCommand(model, mode, names))


SPACE_HEADS = ("WORKER", "STATE", "SIZE", "BRANCH", "FOLDER")
KEPT_REASONS = {
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
    json: JsonOption = False,
) -> int:
    """Remove the workers' folders that are clean or merged, and list the others."""
    with open_daemon_client() as through:
        if dry_run and not remove:
            found = through.call("spaces_list", SpacesRequest(), SpaceList)
            done = ClearReply(removed=(), kept=found.spaces)
        elif dry_run:
            raise typer.BadParameter("--dry-run removes nothing: leave --remove out")
        else:
            request = ClearRequest(workers=tuple(remove or ()))
            done = through.call("spaces_clear", request, ClearReply)
    if json:
        print_json(done)
    else:
        _show_spaces(done)
    return 0


def _show_spaces(done: ClearReply) -> None:
    for space in done.removed:
        print(strip_controls(_removed_line(space)))
    if not done.kept:
        print("no worker's folder is kept")
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
