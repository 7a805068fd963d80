"""Runs one command of `go-ent`, found in the table of commands, and maps errors to exit codes.

`--help` and completion need names and help lines alone, so the table repeats the first paragraph of
each command's docstring; a test compares the two.

0 done · 1 the work failed · 2 settings or usage · 3 go-ent or its environment · 130 interrupted
"""

import signal
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command, get_group

from goent import __version__
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

if TYPE_CHECKING:
    from typer._click import Command, Context


WORK, LOOK, SET_UP = "Work", "Look", "Set up"


class CommandEntry(NamedTuple):
    """`path` is what a person types, `source` where its function (or a group's `Typer`) is defined."""

    path: str
    source: str
    panel: str | None
    help: str

    @property
    def group(self) -> str:
        return self.path.rpartition(" ")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition(" ")[2]


# fmt: off
COMMANDS: Final = tuple(CommandEntry(*row) for row in (
    ("run", "worker_commands:run", WORK, "Give a task to a new worker, watch it work, and see the result."),
    ("prompt", "worker_commands:prompt", WORK, "Give an open worker another prompt; it remembers the earlier ones."),
    ("wait", "worker_commands:wait", WORK, "Wait until workers end their turn, or one of them asks a question."),
    ("answer", "worker_commands:answer", WORK, "Answer a worker's permission question. The first answer wins."),
    ("cancel", "worker_commands:cancel", WORK, "Stop a worker's turn; its work so far is kept and shown."),
    ("swarm", "swarm_commands:swarm_group", WORK, "Run several tasks in parallel, each worker in its own folder, and merge their work."),
    ("eval", "main:eval_group", WORK, "Run workers on suites of cases, grade the results, and compare runs."),
    ("ps", "worker_commands:ps", LOOK, "List the workers of this project, newest first."),
    ("status", "worker_commands:status", LOOK, "Show a worker's state, step, progress, cost and open question."),
    ("output", "worker_commands:output", LOOK, "Print a worker's messages and tool calls."),
    ("result", "worker_commands:result", LOOK, "Show the result of a worker's task, and what was verified."),
    ("classify", "classify_command:classify", LOOK, "Classify a task by type, complexity and size, with reasons. Starts nothing."),
    ("costs", "project_commands:costs", LOOK, "Show what was spent. Unknown prices show as unknown, never as $0."),
    ("recommend", "route_commands:recommend", LOOK, "Recommend a provider for a task, with its cost, and whether to delegate it at all."),
    ("providers", "route_commands:providers_group", LOOK, "List the models that workers can run on, with price and health."),
    ("routes", "route_commands:routes_group", LOOK, "Show which rules decide where tasks go; without a command, list them."),
    ("gc", "project_commands:gc", SET_UP, "Remove workers' folders that are clean or merged, and list the others."),
    ("demo", "demo:demo", SET_UP, "See go-ent work: three workers in parallel on scripted models. Needs OpenCode, but no key."),
    ("init", "setup:init", SET_UP, "Set up this project: settings in .goent/, and go-ent as an MCP server in .mcp.json."),
    ("trust", "trust:trust", SET_UP, "Review what this project's files would do, and allow it."),
    ("doctor", "doctor:doctor", SET_UP, "Check what go-ent needs, and name a remedy for what is missing. Needs no daemon."),
    ("mcp", "project_commands:mcp", SET_UP, "Serve MCP on stdin and stdout; this is what an MCP client starts."),
    ("acp", "agent_commands:acp", SET_UP, "Serve an editor (any ACP client) on stdin and stdout with go-ent's own agent."),
    ("daemon", "project_commands:daemon_group", SET_UP, "The background process that serves this project."),
    ("eval run", "eval_run_commands:run", None, "Run each case on each target, grade the results, and keep everything."),
    ("eval grade", "eval_run_commands:grade", None, "Grade a stored run again, with its suites' current graders or with others."),
    ("eval validate", "eval_suite_commands:validate", None, "Check suites and targets for everything a run with these options would refuse. Runs nothing."),
    ("eval compare", "eval_report_commands:compare", None, "Compare runs case by case: is one better than an earlier one, beyond chance?"),
    ("eval report", "eval_report_commands:report", None, "Summarize a run, or write reports to files. Runs nothing again."),
    ("eval list", "eval_report_commands:list_runs", None, "List this project's runs in .goent/evals, newest first."),
    ("eval import", "eval_suite_commands:import_suites", None, "Convert suites and targets from AgentV and promptfoo, or data sets to suites and back."),
))
# fmt: on


class CommandStub(TyperCommand):
    """What `--help` shows of a command that is not imported."""

    def __init__(self, entry: CommandEntry) -> None:
        super().__init__(entry.name, help=entry.help, rich_help_panel=entry.panel)
        self.entry = entry

    def load(self) -> "Command":
        module, _, attribute = self.entry.source.partition(":")
        found: typer.Typer | Callable[..., object] = getattr(
            import_module(f"goent.cli.{module}"), attribute
        )
        if isinstance(found, typer.Typer):
            return with_stubs(get_group(found), self.entry.path)
        alone = typer.Typer(add_completion=False)
        alone.command(self.name)(found)
        return get_command(alone)


class LazyGroup(TyperGroup):
    """A group whose commands stay stubs until one is invoked."""

    def resolve_command(
        self, ctx: "Context", args: list[str]
    ) -> "tuple[str | None, Command | None, list[str]]":
        name, command, rest = super().resolve_command(ctx, args)
        return name, command.load() if isinstance(command, CommandStub) else command, rest


def with_stubs(group: TyperGroup, path: str = "") -> TyperGroup:
    """Add the table's commands to their group."""
    for entry in COMMANDS:
        if entry.group == path:
            group.add_command(CommandStub(entry))
    return group


eval_group = typer.Typer(
    name="eval",
    cls=LazyGroup,
    no_args_is_help=True,
    help="Run workers on suites of cases, grade the results, and compare runs."
    "\n\nExits 0 if all is well, 1 if quality is not, 2 if a file is wrong, 3 if attempts failed.",
)

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
