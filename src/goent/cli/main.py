"""Runs one command of `go-ent` and maps errors to exit codes.

0 done · 1 the work failed · 2 settings or usage · 3 go-ent or its environment · 130 interrupted
"""

import signal
import sys
from typing import Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from goent import __version__
from goent.cli.command_registry import LazyGroup, with_stubs
from goent.cli.daemon_client import CommandError
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
FREE_TEXT_COMMANDS = ("run", "prompt", "classify")

app = typer.Typer(
    name="go-ent",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    suggest_commands=True,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"go-ent {__version__}")
        raise typer.Exit


def _show_login(wanted: bool) -> None:
    if wanted:
        from goent.cli.agent_commands import log_in  # noqa: PLC0415 (it loads the agent)

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


def command_tree() -> TyperGroup:
    """All commands; those of the registry are stubs until they are invoked."""
    group = get_command(app)
    assert isinstance(group, TyperGroup), "an app with a callback is a group"
    return with_stubs(group)


def run_cli(arguments: list[str]) -> int:
    """Run one command; an expected error becomes one line on stderr."""
    open_streams()
    try:
        code: object = command_tree()(
            arguments or ["--help"], prog_name="go-ent", standalone_mode=False
        )
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
        if isinstance(left.__context__, BrokenPipeError):  # typer would report a failure
            return _stdout_closed()
        raise
    return code if isinstance(code, int) else 0


def _with_hint(message: str, arguments: list[str]) -> str:
    """A task may begin with a dash, and is then taken for an option."""
    if not (message.startswith("No such option") and arguments[0] in FREE_TEXT_COMMANDS):
        return message
    command = " ".join(arguments[: 1 + (arguments[0] == "prompt")])
    return f"{message}; put text that begins with '-' after `--`: go-ent {command} -- '-…'"


def _exit_code(error: Exception) -> int:
    match error:
        case CommandError() | NoDaemon():
            return error.code
        case GoentError():
            return error.exit_code
        case _:
            return ENVIRONMENT_ERROR


def _stdout_closed() -> int:
    """Nobody reads any more; the interpreter's own flush at exit must not report it."""
    discard_output(sys.stdout)
    return BROKEN_PIPE


def _fail(message: str, code: int) -> int:
    if message:  # empty: the help was shown
        print_notice(strip_controls(message))
    return code
