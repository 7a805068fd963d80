"""`go-ent`: which command was meant, and with which exit code does it end?

0 done · 1 the work failed · 2 settings or usage · 3 go-ent or its environment · 130 interrupted
"""

import signal
import sys
from typing import Annotated

import typer

from goent import __version__
from goent.domain.errors import ConfigError, GoentError
from goent.frontends.cli import (
    classifying,
    project,
    providers,
    routes,
    running,
    spaces,
    workers,
)
from goent.frontends.cli.client import Trouble
from goent.frontends.cli.evals import evals
from goent.frontends.cli.screen import (
    Unwritten,
    clean,
    complain,
    complain_of,
    give_up,
    open_streams,
)
from goent.frontends.cli.swarm import swarm
from goent.launch import NoDaemon
from goent.project import UnsafeFolder

USAGE = 2
ENVIRONMENT = 3
INTERRUPTED = 128 + signal.SIGINT
UNREAD = 128 + signal.SIGPIPE
EXPECTED = (Trouble, NoDaemon, GoentError, UnsafeFolder)
TALKING = ("run", "prompt", "classify")  # the commands that take words of any kind
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    name="go-ent",
    context_settings=HELP_OPTIONS,
    pretty_exceptions_enable=False,
    suggest_commands=True,
)
daemon = typer.Typer(no_args_is_help=True, help="The background process that serves this project.")

WORK = "Work"
LOOK = "Look"
AROUND = "Set up"

for panel, command in (
    (WORK, running.run),
    (WORK, running.prompt),
    (WORK, workers.wait),
    (WORK, workers.answer),
    (WORK, workers.cancel),
    (LOOK, workers.ps),
    (LOOK, workers.status),
    (LOOK, workers.output),
    (LOOK, workers.result),
    (LOOK, classifying.classify),
    (LOOK, project.costs),
    (LOOK, routes.recommend),
    (AROUND, spaces.gc),
    (AROUND, project.demo),
    (AROUND, project.init),
    (AROUND, project.trust),
    (AROUND, project.doctor),
    (AROUND, project.mcp),
    (AROUND, project.acp),
):
    app.command(rich_help_panel=panel)(command)
app.add_typer(swarm, name="swarm", rich_help_panel=WORK)
app.add_typer(evals, name="eval", rich_help_panel=WORK)
models = typer.Typer(invoke_without_command=True, callback=providers.providers)
models.command("reset")(providers.reset)
app.add_typer(models, name="providers", rich_help_panel=LOOK)
daemon.command("status")(project.daemon_status)
daemon.command("stop")(project.daemon_stop)
app.add_typer(daemon, name="daemon", rich_help_panel=AROUND)
app.add_typer(routes.routes, name="routes", rich_help_panel=LOOK)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"go-ent {__version__}")
        raise typer.Exit


def _log_in(wanted: bool) -> None:
    if wanted:
        from goent.frontends.cli.login import log_in  # noqa: PLC0415 (only here)

        raise typer.Exit(log_in())


@app.callback()
def _common(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    # Some lists of agents start `go-ent --login`, and not `go-ent acp --login`.
    _login: Annotated[
        bool, typer.Option("--login", callback=_log_in, is_eager=True, hidden=True)
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
        return _complain(_hinted(error.format_message(), arguments), USAGE)
    except ConfigError as error:
        complain_of(clean(str(error)).splitlines() or [""])
        return error.exit_code
    except EXPECTED as error:
        return _complain(str(error), _exit_code(error))
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:
        return _unread()
    except Unwritten as error:
        give_up(sys.stdout)
        return _complain(f"stdout cannot be written: {error.strerror}", ENVIRONMENT)
    except SystemExit as left:
        if isinstance(left.__context__, BrokenPipeError):  # typer would make a failure of it
            return _unread()
        raise
    return code if isinstance(code, int) else 0


def _hinted(message: str, arguments: list[str]) -> str:
    """A task may begin like an option, and is then taken for one."""
    if not (message.startswith("No such option") and arguments[0] in TALKING):
        return message
    command = " ".join(arguments[: 1 + (arguments[0] == "prompt")])
    return f"{message}; what begins with '-' and is no option goes behind `--`: go-ent {command} -- '-…'"


def _exit_code(error: Exception) -> int:
    match error:
        case Trouble() | NoDaemon():
            return error.code
        case GoentError():
            return error.exit_code
        case _:
            return ENVIRONMENT


def _unread() -> int:
    """Nobody reads any more; the interpreter's own flush at exit must not say so."""
    give_up(sys.stdout)
    return UNREAD


def _complain(message: str, code: int) -> int:
    if message:  # empty: the help was shown
        complain(clean(message))
    return code
