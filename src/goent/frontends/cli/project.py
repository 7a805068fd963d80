"""The commands about the project, the machine and go-ent itself."""

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from goent.domain.provider_replies import Costs
from goent.domain.replies import DaemonInfo, Stopping
from goent.domain.requests import CostsRequest
from goent.domain.types import Value
from goent.frontends.cli.client import Trouble, daemon
from goent.frontends.cli.keys import somebody_is_there
from goent.frontends.cli.options import Json
from goent.frontends.cli.show import print_json
from goent.frontends.cli.spending import show_costs
from goent.launch import NoDaemon
from goent.plain_files import NotPlain
from goent.project import UnsafeFolder, find_project


def costs(
    *,
    by: Annotated[
        Literal["provider", "model", "worker", "day"], typer.Option(help="What makes a line.")
    ] = "provider",
    all_projects: Annotated[
        bool, typer.Option("--all-projects", help="Not of this project alone.")
    ] = False,
    json: Json = False,
) -> int:
    """Show what was spent. A price that is not known is said to be so, never counted as 0."""
    with daemon() as through:
        request = CostsRequest(by=by, project_only=not all_projects)
        report = through.call("cost_report", request, Costs)
    if json:
        print_json(report)
    else:
        show_costs(report)
    return 0


def doctor(*, json: Json = False) -> int:
    """Check what go-ent needs, and say how to mend what is missing. Needs no daemon.

    Exits 0 if go-ent can work here, 2 for a mistake in its settings, 3 if something is missing.
    """
    from goent.doctor import examine  # noqa: PLC0415 (only this command needs it)

    diagnosis = examine(Path.cwd(), os.environ)
    if json:
        print_json(diagnosis)
        return diagnosis.exit_code
    from goent.frontends.cli.checkup import show_diagnosis  # noqa: PLC0415 (the same)

    show_diagnosis(diagnosis)
    return diagnosis.exit_code


def init(
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a go-ent entry that .mcp.json already has.")
    ] = False,
    json: Json = False,
) -> int:
    """Set this project up: settings in .goent/, and go-ent as an MCP server in .mcp.json.

    Settings that exist are left alone, and so are the other servers.
    """
    from goent.config.starter import (  # noqa: PLC0415 (only this command writes settings)
        check_writable,
        write_starter,
    )
    from goent.config.trust.survey import trust_starter  # noqa: PLC0415 (the same)
    from goent.frontends.cli.init import add_mcp_server  # noqa: PLC0415 (the same)

    project = find_project(Path.cwd())
    servers = project / ".mcp.json"
    try:
        check_writable(project)  # first: what is refused has changed nothing
        entered = add_mcp_server(servers, replace=force)
        written = write_starter(project)
        trust_starter(project, os.environ, written)
    except UnsafeFolder:
        raise
    except NotPlain as error:
        raise Trouble(str(error), 2) from error
    except OSError as error:
        raise Trouble(f"cannot write in {str(project)!r}: {error}", 3) from error
    changed = [str(path.relative_to(project)) for path in (*written, *([servers] * entered))]
    if json:
        print_json(Begun(project=str(project), written=tuple(changed)))
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
    json: Json = False,
) -> int:
    """Review what this project's files would do, and allow it.

    Programs they start, addresses and the keys sent there, wider permissions, OpenCode plugins, git
    configuration, commands in evaluations. Trust covers exactly that content: changes are asked
    again. Exits 0 if everything is trusted, 1 if something is not.
    """
    from goent.frontends.cli.trusting import (  # noqa: PLC0415 (only this command)
        list_trusted,
        look_at,
        take_back,
    )

    if listed:
        return list_trusted(json=json)
    if revoked:
        return take_back(paths or (), json=json)
    return look_at(paths or (), yes=yes, json=json)


def ask_before_work(cwd: Path | None = None, *, json: bool) -> None:
    """Ask whoever sits at the terminal about what is not trusted yet. Nobody else is kept waiting."""
    if json or not somebody_is_there():
        return
    from goent.frontends.cli.trusting import ask_for_trust  # noqa: PLC0415 (it reads all settings)

    ask_for_trust(cwd)


class Begun(Value, frozen=True, kw_only=True):
    """What `init` wrote."""

    project: str
    written: tuple[str, ...]


def daemon_status(*, json: Json = False) -> int:
    """Show the daemon that serves this project. Exits 1 if none runs."""
    try:
        with daemon(start=False) as through:
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
    json: Json = False,
) -> int:
    """End the daemon of this project. Workers end with it, what they did is kept."""
    from goent.frontends.cli.ending import stop_daemon  # noqa: PLC0415 (only this command)

    stopped = stop_daemon(Path.cwd(), force=force)
    if json:
        print_json(Stopping(stopping=stopped))
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
    json: Json = False,
) -> int:
    """Serve MCP on stdin and stdout; this is what an MCP client starts.

    With --http the daemon serves it on 127.0.0.1 for as long as this command runs; it prints the
    address and the token that every request needs.
    """
    if http and embedded:
        raise Trouble("--http is served by the daemon: leave out --embedded", 2)
    if not http and (port or json):
        raise Trouble("--port and --json go with --http", 2)
    if http:
        from goent.frontends.cli.door import hold_door  # noqa: PLC0415 (only here)

        return hold_door(Path.cwd(), port, json=json)
    if embedded:
        from goent.embedded import run_embedded  # noqa: PLC0415 (only here)

        return run_embedded(Path.cwd())
    from goent.shim import run_shim  # noqa: PLC0415 (only here)

    return run_shim(Path.cwd())


def demo(
    *,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the sample project behind to look at.")
    ] = False,
    json: Json = False,
) -> int:
    """See go-ent work: three workers at once on scripted models. Needs OpenCode, but no key."""
    from goent.frontends.cli.demo import run_demo  # noqa: PLC0415 (only here)

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
    from goent import acp_process  # noqa: PLC0415 (only here)

    if login:
        from goent.frontends.cli.login import log_in  # noqa: PLC0415 (only here)

        return log_in()

    if mode not in acp_process.MODES:
        raise Trouble(f"there is no mode {mode!r}; one of {', '.join(acp_process.MODES)}", 2)
    names = None if allowed_tools is None else acp_process.tool_names(allowed_tools)
    if names is not None and (strange := acp_process.unknown_tool(names)):
        known = ", ".join(acp_process.TOOLS)
        raise Trouble(f"there is no tool {strange!r}; one of {known}, or mcp__SERVER__TOOL", 2)
    return acp_process.run_acp(acp_process.AgentCommand(model, mode, names))
