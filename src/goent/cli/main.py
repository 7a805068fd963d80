"""Runs one command of `go-ent` and maps what went wrong to an exit code.

0 done · 1 the work failed · 2 settings or usage · 3 go-ent or its environment · 130 interrupted
"""

import signal
import sys
from typing import Annotated

import typer

from goent import __version__
from goent.cli import project_commands, route_commands, worker_commands
from goent.cli.daemon_client import CommandError
from goent.cli.eval_commands import eval_group
from goent.cli.swarm_commands import swarm
from goent.cli.terminal import (
    StdoutUnwritable,
    discard_output,
    open_streams,
    print_mistakes,
    print_notice,
    strip_controls,
)
from goent.daemon.daemon_connection import NoDaemon
from goent.domain.errors import ConfigError, GoentError
from goent.system.project_folders import UnsafeFolder

USAGE_ERROR = 2
ENVIRONMENT_ERROR = 3
INTERRUPTED = 128 + signal.SIGINT
BROKEN_PIPE = 128 + signal.SIGPIPE
EXPECTED_ERRORS = (CommandError, NoDaemon, GoentError, UnsafeFolder)
FREE_TEXT_COMMANDS = ("run", "prompt", "classify")  # the commands that take words of any kind
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="go-ent",
    context_settings=HELP_OPTIONS,
    pretty_exceptions_enable=False,
    suggest_commands=True,
)
daemon_group = typer.Typer(
    no_args_is_help=True, help="The background process that serves this project."
)

WORK_PANEL = "Work"
LOOK_PANEL = "Look"
SETUP_PANEL = "Set up"

for panel, command in (
    (WORK_PANEL, worker_commands.run),
    (WORK_PANEL, worker_commands.prompt),
    (WORK_PANEL, worker_commands.wait),
    (WORK_PANEL, worker_commands.answer),
    (WORK_PANEL, worker_commands.cancel),
    (LOOK_PANEL, worker_commands.ps),
    (LOOK_PANEL, worker_commands.status),
    (LOOK_PANEL, worker_commands.output),
    (LOOK_PANEL, worker_commands.result),
    (LOOK_PANEL, route_commands.classify),
    (LOOK_PANEL, project_commands.costs),
    (LOOK_PANEL, route_commands.recommend),
    (SETUP_PANEL, project_commands.gc),
    (SETUP_PANEL, project_commands.demo),
    (SETUP_PANEL, project_commands.init),
    (SETUP_PANEL, project_commands.trust),
    (SETUP_PANEL, project_commands.doctor),
    (SETUP_PANEL, project_commands.mcp),
    (SETUP_PANEL, project_commands.acp),
):
    app.command(rich_help_panel=panel)(command)
app.add_typer(swarm, name="swarm", rich_help_panel=WORK_PANEL)
app.add_typer(eval_group, name="eval", rich_help_panel=WORK_PANEL)
providers_group = typer.Typer(invoke_without_command=True, callback=route_commands.providers)
providers_group.command("reset")(route_commands.reset)
app.add_typer(providers_group, name="providers", rich_help_panel=LOOK_PANEL)
daemon_group.command("status")(project_commands.daemon_status)
daemon_group.command("stop")(project_commands.daemon_stop)
app.add_typer(daemon_group, name="daemon", rich_help_panel=SETUP_PANEL)
app.add_typer(route_commands.routes, name="routes", rich_help_panel=LOOK_PANEL)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"go-ent {__version__}")
        raise typer.Exit


def _show_login(wanted: bool) -> None:
    if wanted:
        from goent.cli.setup import log_in  # noqa: PLC0415 (only here)

        raise typer.Exit(log_in())


@app.callback()
def _global_options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    # Some lists of agents start `go-ent --login`, and not `go-ent acp --login`.
    _login: Annotated[
        bool, typer.Option("--login", callback=_show_login, is_eager=True, hidden=True)
    ] = False,
) -> None:
    """Hand tasks to coding workers on any model, and know what they did.

    A first look: go-ent demo. In your own project: go-ent init, then go-ent run "a task".
    """


def run_cli(arguments: list[str]) -> int:
    """Run one command; what goes wrong in an expected way is said in one line on stderr."""
    open_streams()
    try:
        code: object = app(arguments or ["--help"], prog_name="go-ent", standalone_mode=False)
        sys.stdout.flush()
    except typer.TyperException as error:
        return _fail(_with_hint(error.format_message(), arguments), USAGE_ERROR)
    except ConfigError as error:
        print_mistakes(strip_controls(str(error)).splitlines() or [""])
        return error.exit_code
    except EXPECTED_ERRORS as error:
        return _fail(str(error), _exit_code(error))
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return _stdout_closed()
    except StdoutUnwritable as error:
        discard_output(sys.stdout)
        return _fail(f"stdout cannot be written: {error.strerror}", ENVIRONMENT_ERROR)
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):  # typer would make a failure of it
            return _stdout_closed()
        raise
    return code if isinstance(code, int) else 0


def _with_hint(message: str, arguments: list[str]) -> str:
    """A task may begin like an option, and is then taken for one."""
    if not (message.startswith("No such option") and arguments[0] in FREE_TEXT_COMMANDS):
        return message
    command = " ".join(arguments[: 1 + (arguments[0] == "prompt")])
    return f"{message}; what begins with '-' and is no option goes behind `--`: go-ent {command} -- '-…'"


def _exit_code(error: Exception) -> int:
    match error:
        case CommandError() | NoDaemon():
            return error.code
        case GoentError():
            return error.exit_code
        case _:
            return ENVIRONMENT_ERROR


def _stdout_closed() -> int:
    """Nobody reads any more; the interpreter's own flush at exit must not say so."""
    discard_output(sys.stdout)
    return BROKEN_PIPE


def _fail(message: str, code: int) -> int:
    if message:  # empty: the help was shown
        print_notice(strip_controls(message))
    return code
