"""The Bash tool: runs a command here, in the client's terminal, or in the background."""

import logging
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Annotated

import anyio
from anyio.abc import TaskGroup
from msgspec import Meta
from msgspec.structs import replace

from goent.agent.agent_events import DisplayPart, TerminalPart, TextPart
from goent.agent.agent_ports import (
    ClientTerminal,
    ClientTerminals,
    OnToolProgress,
    PermissionNeed,
    ToolIntent,
    ToolInvocation,
    ToolMistake,
    ToolOutcome,
    ToolProgress,
)
from goent.agent.tools.command_shell import (
    KEPT_BYTES,
    POLL_S,
    CommandExit,
    CommandLaunch,
    CommandShell,
    OutputBuffer,
    end_marked,
    plain_output,
)
from goent.agent.tools.session_files import printable
from goent.agent.tools.typed_tool import ToolArguments, TypedTool
from goent.proc.process_table import marked_environment, marked_processes
from goent.sandbox.sandbox_hints import is_refusal

UNCONFINED_PREFIX = "[unconfined] "
_QUOTED = re.compile(r"'[^']*'|\"[^\"$`\\!]*\"")
_SHELL_SYNTAX = re.compile(r"[;&|<>$`\\(){}#!\n\r'\"]")
_WORD = re.compile(r"[A-Za-z0-9_./+-]+")
_RUNS_ANYTHING = re.compile(
    "(ba|da|z|k|fi)?sh|env|sudo|su|doas|xargs|nice|nohup|timeout|time|eval|exec|source|[.]|command"
    "|builtin|watch|ssh|find|parallel|setsid|chroot|unshare|strace|gdb|script|trap|awk|sed|perl|ruby"
    "|php|rm|dd|curl|wget|docker|podman|kubectl|coproc|busybox|flock|nsenter|pkexec|stdbuf|tmux|screen"
)
_HAS_SUBCOMMANDS = re.compile(  # the second word says which
    "git|npm|npx|pnpm|yarn|bun|deno|node|cargo|go|make|just|task|pip3?|uvx?|poetry|pdm|hatch|python[0-9.]*"
    "|helm|gh|glab|terraform|dotnet|mvn|gradle|apt|apt-get|brew|systemctl"
)


def command_need(command: str, *, unconfined: bool) -> PermissionNeed:
    """The permission for a command; "always" covers the first words of a single simple command.

    Where the shell could do more than is written (substitutions, redirections, lists) or the
    program runs its arguments (`env`, `xargs`, `python -c`), the first words say nothing about the
    rest, and "always" covers only the same text.
    """
    command = command.strip()
    text = UNCONFINED_PREFIX + command if unconfined else command
    first = None if unconfined else first_words(command)
    if first is None:
        return PermissionNeed(permission="bash", patterns=(text,), always=(text,), exact=True)
    return PermissionNeed(permission="bash", patterns=(text,), always=(f"{first} *",))


def first_words(command: str) -> str | None:
    """The words that identify the program; None if no short beginning does."""
    bare = _QUOTED.sub("q", command)
    if _SHELL_SYNTAX.search(bare):
        return None
    program, *others = bare.split()[:2] or [""]
    name = program.rpartition("/")[2]
    if _RUNS_ANYTHING.fullmatch(name) or not _WORD.fullmatch(program):
        return None
    if not command.startswith(program):  # it is quoted
        return None
    if not _HAS_SUBCOMMANDS.fullmatch(name):
        return program
    if others and _WORD.fullmatch(others[0]) and not others[0].startswith("-"):
        return f"{program} {others[0]}" if f"{program} {others[0]}" in command else None
    return None if others else program


CLIENT_S = 10.0  # for a client to reply


async def run_in_terminal(
    terminals: ClientTerminals,
    launch: CommandLaunch,
    cwd: Path,
    limit: float,
    report: OnToolProgress,
) -> tuple[CommandExit, str, str]:
    """Returns exit, output and the terminal's id. The terminal is killed and released in any case."""
    program, *arguments = launch.command
    env = marked_environment(launch.env, launch.mark)
    try:
        terminal = await terminals.create(program, tuple(arguments), cwd, env, KEPT_BYTES)
    except OSError as error:
        raise ToolMistake(f"the client cannot run the command: {error}") from None
    code: int | None = None
    left = False
    try:
        await report(ToolProgress(shown=(TerminalPart(id=terminal.id),)))
        with anyio.move_on_after(limit) as waiting:
            code = await terminal.wait()
        text, exit_code = await terminal.output()
    except OSError as error:
        raise ToolMistake(f"the client's terminal failed: {error}") from None
    finally:
        with anyio.CancelScope(shield=True):
            left = await _end_terminal(terminal, launch.mark)
    late = waiting.cancelled_caught
    code = None if late else (exit_code if code is None else code)
    ended = CommandExit(exit=code, timed_out=late, left_running=left)
    return ended, plain_output(text), terminal.id


async def _end_terminal(terminal: ClientTerminal, mark: str) -> bool:
    """Kills and releases the terminal; returns whether the command had left something running."""
    left = bool(list(marked_processes(mark)))
    for request in (terminal.kill, terminal.release):
        with anyio.move_on_after(CLIENT_S), suppress(OSError):
            await request()
        if left:
            await end_marked(mark)  # the client may have ended the shell alone
    return left


MAX_BACKGROUND = 16

log = logging.getLogger(__name__)


class BackgroundCommand:
    """A command that runs until it ends, is stopped, or the session ends."""

    def __init__(self) -> None:
        self.output = OutputBuffer()
        self.exit: CommandExit | None = None
        self.failure: ToolMistake | None = None
        self.scope = anyio.CancelScope()
        self.ended = anyio.Event()

    async def run(self, shell: CommandShell, launch: CommandLaunch) -> None:
        try:
            with self.scope:
                self.exit = await shell.run(launch, self.output, None)
        except ToolMistake as mistake:
            self.failure = mistake
        except Exception as error:
            log.exception("a background command failed")
            self.failure = ToolMistake(f"the command failed: {error}")
        finally:
            self.ended.set()

    async def wait_for_output(self) -> None:
        """Waits until there is new output, or the command has ended."""
        while not (self.output.total or self.ended.is_set()):  # noqa: ASYNC110 (output has no event)
            await anyio.sleep(POLL_S)


class BackgroundCommands:
    """The background commands of a session, inside `background_commands`."""

    def __init__(self, shell: CommandShell, tasks: TaskGroup) -> None:
        self._shell = shell
        self._tasks = tasks
        self._all: dict[str, BackgroundCommand] = {}

    def check_room(self) -> None:
        """Raises `ToolMistake` if there is no room for another command."""
        running = [name for name, command in self._all.items() if not command.ended.is_set()]
        if len(running) >= MAX_BACKGROUND:
            raise ToolMistake(
                f"{MAX_BACKGROUND} commands run in the background already: stop one of {running}"
            )

    def start(self, launch: CommandLaunch) -> str:
        self.check_room()
        name = f"bg_{len(self._all) + 1}"
        self._all[name] = BackgroundCommand()
        self._tasks.start_soon(self._all[name].run, self._shell, launch)
        return name

    def get(self, name: str) -> BackgroundCommand:
        """Raises `ToolMistake` for an unknown name."""
        if name not in self._all:
            known = ", ".join(self._all) or "none was started"
            raise ToolMistake(f"no background command {name!r}; known: {known}")
        return self._all[name]


@asynccontextmanager
async def background_commands(shell: CommandShell) -> AsyncGenerator[BackgroundCommands]:
    """Leaving ends all commands; it must be left by the task that entered it."""
    failure: Exception | None = None
    async with anyio.create_task_group() as tasks:
        try:
            yield BackgroundCommands(shell, tasks)
        except Exception as error:  # noqa: BLE001 (raised below, where no group wraps it)
            failure = error
        tasks.cancel_scope.cancel()
    if failure:
        raise failure


DEFAULT_TIMEOUT_S = 120
MAX_TIMEOUT_S = 600
DEFAULT_WATCH_S = 5.0
SETTLE_S = 0.3  # for what follows the first new output
LOOK_S = 1.0  # for a background command to fail immediately, or to write its first output
MAX_TITLE_CHARS = 200

BASH_DESCRIPTION = """Run a command in bash, in the working directory; each call is a new shell, without input and terminal.
Returns output and errors together; of long output only the beginning and the end. Prefer Read, Grep, Glob and Edit where they suffice.
For servers and watchers set background: they end with the session. output_of returns the output of such a command since your last look; stop ends it."""
CONFINED_NOTE = """
Commands can write only in the working directory and in temporary folders. If one must write elsewhere, set unconfined: the user is asked."""
UNCONFINED_NOTE = """
Commands are not confined here: they can write wherever the user can. Be careful."""

Seconds = Annotated[float, Meta(gt=0, le=MAX_TIMEOUT_S)]


class BashArguments(ToolArguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of Bash."""

    command: Annotated[str, Meta(description="what to run")] = ""
    description: Annotated[str, Meta(description="what it does, in a few words, for the user")] = ""
    timeout_s: Annotated[
        Seconds | None,
        Meta(
            description=f"time limit of a command (default {DEFAULT_TIMEOUT_S} s), or how long output_of"
            f" waits for new output (default {DEFAULT_WATCH_S:g} s)",
        ),
    ] = None
    background: Annotated[bool, Meta(description="do not wait for its end")] = False
    unconfined: Annotated[
        bool, Meta(description="ask the user to let it write outside the working directory")
    ] = False
    output_of: Annotated[str, Meta(description="instead of command: id of a background one")] = ""
    stop: Annotated[str, Meta(description="instead of command: id of a background one")] = ""


class BashTool:
    """Runs the commands of one session."""

    def __init__(
        self, shell: CommandShell, running: BackgroundCommands, terminals: ClientTerminals | None
    ) -> None:
        self._shell = shell
        self._running = running
        self._terminals = terminals
        self._warned = False

    def tool(self) -> TypedTool[BashArguments]:
        def describe() -> str:
            return BASH_DESCRIPTION + (CONFINED_NOTE if self._shell.confines else UNCONFINED_NOTE)

        return TypedTool("Bash", BashArguments, describe, self._inspect)

    async def _inspect(self, asked: BashArguments) -> ToolInvocation:
        if sum(map(bool, (asked.command.strip(), asked.output_of, asked.stop))) != 1:
            raise ToolMistake("Bash needs exactly one of command, output_of and stop")
        if asked.output_of:
            return self._watch(asked.output_of, asked.timeout_s or DEFAULT_WATCH_S)
        if asked.stop:
            return self._stop(asked.stop)
        if "\0" in asked.command:
            raise ToolMistake("the command has a NUL character in it")
        if asked.background:
            self._running.check_room()
        intent = ToolIntent(
            kind="execute",
            title=_title(asked),
            need=command_need(asked.command, unconfined=asked.unconfined),
            shown=_display_parts(asked),
        )

        async def run(report: OnToolProgress) -> ToolOutcome:
            outcome = await self._run(asked, report)
            if self._warned or self._shell.confines:
                return outcome
            self._warned = True
            return replace(
                outcome, text=f"{outcome.text}\n(not confined: no sandbox is available here)"
            )

        return ToolInvocation(intent, run)

    async def _run(self, asked: BashArguments, report: OnToolProgress) -> ToolOutcome:
        launch = await self._shell.launch(
            asked.command,
            unconfined=asked.unconfined,
            at_client=self._terminals is not None and not asked.background,
        )
        if asked.background:
            name = self._running.start(launch)
            started = self._running.get(name)
            with anyio.move_on_after(LOOK_S):
                await started.ended.wait()
            return _background_outcome(name, started)
        limit = asked.timeout_s or DEFAULT_TIMEOUT_S
        if self._terminals:
            ended, text, terminal = await run_in_terminal(
                self._terminals, launch, self._shell.cwd, limit, report
            )
            shown = (TerminalPart(id=terminal),)
        else:
            output = OutputBuffer()

            async def report_output() -> None:
                await report(ToolProgress(output=output.text))

            ended = await self._shell.run(launch, output, limit, report_output)
            text, shown = output.text, ()
        notes = _notes(ended, limit)
        confined = self._shell.confines and not asked.unconfined
        if ended.exit and confined and is_refusal(text[-KEPT_BYTES:]):
            notes.append(_sandbox_hint(self._shell))
        return ToolOutcome(
            text=_joined_text(text, notes), failed=ended.exit != 0, shown=shown, exit=ended.exit
        )

    def _watch(self, name: str, patience: float) -> ToolInvocation:
        watched = self._running.get(name)

        async def run(_: OnToolProgress) -> ToolOutcome:
            with anyio.move_on_after(patience):
                await watched.wait_for_output()
                with anyio.move_on_after(SETTLE_S):
                    await watched.ended.wait()
            return _background_outcome(name, watched)

        intent = ToolIntent(kind="read", title=f"Output of {name}", runs_alone=False)
        return ToolInvocation(intent, run)

    def _stop(self, name: str) -> ToolInvocation:
        stopped = self._running.get(name)

        async def run(_: OnToolProgress) -> ToolOutcome:
            stopped.scope.cancel()
            await stopped.ended.wait()
            text = _joined_text(stopped.output.take_new_text(), [f"{name} is stopped"])
            return ToolOutcome(text=text)

        return ToolInvocation(ToolIntent(kind="execute", title=f"Stop {name}"), run)


def _background_outcome(name: str, command: BackgroundCommand) -> ToolOutcome:
    if command.failure:
        raise command.failure
    text, ended = command.output.take_new_text(), command.exit
    if ended is None:
        state = "was stopped" if command.ended.is_set() else "is running"
        return ToolOutcome(text=_joined_text(text, [f"{name} {state}"]))
    return ToolOutcome(
        text=_joined_text(text, [f"{name} has ended", *_notes(ended, 0)]),
        failed=ended.exit != 0,
        exit=ended.exit,
    )


def _title(asked: BashArguments) -> str:
    command = printable(asked.command.strip())
    title = command if len(command) <= MAX_TITLE_CHARS else f"{command[:MAX_TITLE_CHARS]}..."
    return f"(unconfined) {title}" if asked.unconfined else title


def _display_parts(asked: BashArguments) -> tuple[DisplayPart, ...]:
    """The whole command for the permission request, if the title has no room for it."""
    command = asked.command.strip()
    parts = [asked.description] if asked.description else []
    if len(command) > MAX_TITLE_CHARS or not command.isprintable():
        parts.append(f"```sh\n{command}\n```")
    return tuple(TextPart(text=part) for part in parts)


def _notes(ended: CommandExit, limit: float) -> list[str]:
    notes: list[str] = []
    if ended.timed_out:
        notes.append(
            f"not done after {limit:g} s: ended. A longer timeout_s (at most {MAX_TIMEOUT_S}) or"
            " background may help"
        )
    elif ended.exit is None:
        notes.append("ended by a signal")
    elif ended.exit:
        notes.append(f"exit code {ended.exit}{_signal(ended.exit)}")
    if ended.left_running:
        notes.append("processes it left running were ended: use background for those")
    return notes


def _signal(code: int) -> str:
    try:
        return f": {signal.Signals(code - 128).name}"
    except ValueError:
        return ""


def _joined_text(text: str, notes: list[str]) -> str:
    note = f"({'; '.join(notes)})" if notes else ""
    return "\n".join(filter(None, (text.rstrip("\n"), note))) or "(no output)"


def _sandbox_hint(shell: CommandShell) -> str:
    folders = ", ".join(printable(str(folder)) for folder in shell.writable)
    return (
        f"commands can write only below {folders}: set unconfined to write elsewhere, or ask the user to "
        "add the folder to `sandbox.writable` in ~/.config/go-ent/config.yaml"
    )
