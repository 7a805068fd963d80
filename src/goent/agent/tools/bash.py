"""Bash: run this command, here and now, at the client, or in the background."""

import signal
from typing import Annotated

import anyio
from msgspec import Meta

from goent.agent.content import Shown, Terminal, Words
from goent.agent.ports import ClientTerminals, Intent, Outcome, Progress, Report, ToolMistake
from goent.agent.tools.backgrounds import Background, Backgrounds
from goent.agent.tools.calls import Arguments, Prepared, ToolOf
from goent.agent.tools.covering import need_of
from goent.agent.tools.outputs import KEPT, Kept
from goent.agent.tools.places import printable
from goent.agent.tools.shells import Exit, Shell
from goent.agent.tools.terminals import in_terminal
from goent.sandbox.hints import is_refusal

TIMEOUT = 120
LONGEST = 600
NEWS = 5.0  # seconds
MORE = 0.3  # seconds for what follows the first of something new
LOOK_S = 1.0  # seconds in which a background command may fail at once, or say its first words
TITLE = 200

DESCRIPTION = """Run a command in bash, in the working directory; each call is a shell of its own. There is no input and no terminal.
Output and errors come back together, of much output the beginning and the end. Prefer Read, Grep, Glob and Edit where they do.
For servers and watchers set background: they are ended with the session. output_of tells what such a command has said since you looked last; stop ends it."""
CONFINED = """
Commands can write only in the working directory and in temporary folders. If one must write elsewhere, set unconfined, and the user is asked."""
OPEN = """
Commands are not confined here: they can write wherever the user can. Be careful."""

Seconds = Annotated[float, Meta(gt=0, le=LONGEST)]


class BashArguments(Arguments, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of Bash."""

    command: Annotated[str, Meta(description="what to run")] = ""
    description: Annotated[str, Meta(description="what it does, in a few words, for the user")] = ""
    timeout_s: Annotated[
        Seconds | None,
        Meta(
            description=f"seconds until a command is ended (default {TIMEOUT}), or output_of waits"
            f" for something new (default {NEWS:g})",
        ),
    ] = None
    background: Annotated[bool, Meta(description="do not wait for its end")] = False
    unconfined: Annotated[
        bool, Meta(description="ask the user to let it write outside the working directory")
    ] = False
    output_of: Annotated[str, Meta(description="instead of command: id of a background one")] = ""
    stop: Annotated[str, Meta(description="instead of command: id of a background one")] = ""


class Bash:
    """Runs commands of one session."""

    def __init__(
        self, shell: Shell, running: Backgrounds, terminals: ClientTerminals | None
    ) -> None:
        self._shell = shell
        self._running = running
        self._terminals = terminals
        self._warned = False

    def tool(self) -> ToolOf[BashArguments]:
        def describe() -> str:
            return DESCRIPTION + (CONFINED if self._shell.confines else OPEN)

        return ToolOf("Bash", BashArguments, describe, self._look)

    async def _look(self, asked: BashArguments) -> Prepared:
        if sum(map(bool, (asked.command.strip(), asked.output_of, asked.stop))) != 1:
            raise ToolMistake("Bash takes one of command, output_of and stop")
        if asked.output_of:
            return self._watch(asked.output_of, asked.timeout_s or NEWS)
        if asked.stop:
            return self._stop(asked.stop)
        if "\0" in asked.command:
            raise ToolMistake("the command has a NUL character in it")
        if asked.background:
            self._running.room()
        intent = Intent(
            kind="execute",
            title=_title(asked),
            need=need_of(asked.command, unconfined=asked.unconfined),
            shown=_shown(asked),
        )

        async def run(report: Report) -> Outcome:
            outcome = await self._run(asked, report)
            return self._warned_once(outcome)

        return Prepared(intent, run)

    async def _run(self, asked: BashArguments, report: Report) -> Outcome:
        launch = await self._shell.launch(
            asked.command,
            unconfined=asked.unconfined,
            at_client=self._terminals is not None and not asked.background,
        )
        if asked.background:
            name = self._running.start(launch)
            started = self._running.get(name)
            with anyio.move_on_after(LOOK_S):
                await started.over.wait()
            return _told_of(name, started)
        limit = asked.timeout_s or TIMEOUT
        if self._terminals:
            ran, text, terminal = await in_terminal(
                self._terminals, launch, self._shell.cwd, limit, report
            )
            shown = (Terminal(id=terminal),)
        else:
            said = Kept()

            async def tell() -> None:
                await report(Progress(output=said.text))

            ran = await self._shell.run(launch, said, limit, tell)
            text, shown = said.text, ()
        notes = _notes(ran, limit)
        if ran.exit and not asked.unconfined and self._shell.confines and _denied(text):
            notes.append(_hint(self._shell))
        return Outcome(text=_joined(text, notes), failed=ran.exit != 0, shown=shown, exit=ran.exit)

    def _warned_once(self, outcome: Outcome) -> Outcome:
        if self._warned or self._shell.confines:
            return outcome
        self._warned = True
        return Outcome(
            text=f"{outcome.text}\n(not confined: there is no sandbox here)",
            failed=outcome.failed,
            shown=outcome.shown,
            exit=outcome.exit,
        )

    def _watch(self, name: str, patience: float) -> Prepared:
        watched = self._running.get(name)

        async def run(_: Report) -> Outcome:
            with anyio.move_on_after(patience):
                await watched.news()
                with anyio.move_on_after(MORE):
                    await watched.over.wait()
            return _told_of(name, watched)

        return Prepared(Intent(kind="read", title=f"Output of {name}", alone=False), run)

    def _stop(self, name: str) -> Prepared:
        stopped = self._running.get(name)

        async def run(_: Report) -> Outcome:
            stopped.scope.cancel()
            await stopped.over.wait()
            return Outcome(text=_joined(stopped.said.take(), [f"{name} is stopped"]))

        return Prepared(Intent(kind="execute", title=f"Stop {name}"), run)


def _told_of(name: str, one: Background) -> Outcome:
    if one.failure:
        raise one.failure
    text = one.said.take()
    if not one.over.is_set():
        return Outcome(text=_joined(text, [f"{name} is running"]))
    if one.ran is None:
        return Outcome(text=_joined(text, [f"{name} was stopped"]))
    return Outcome(
        text=_joined(text, [f"{name} has ended", *_notes(one.ran, 0)]),
        failed=one.ran.exit != 0,
        exit=one.ran.exit,
    )


def _title(asked: BashArguments) -> str:
    command = printable(asked.command.strip())
    title = command if len(command) <= TITLE else f"{command[:TITLE]}..."
    return f"(unconfined) {title}" if asked.unconfined else title


def _shown(asked: BashArguments) -> tuple[Shown, ...]:
    """Who is asked sees all of the command, also what a title has no room for."""
    command = asked.command.strip()
    parts = [asked.description] if asked.description else []
    if len(command) > TITLE or not command.isprintable():
        parts.append(f"```sh\n{command}\n```")
    return tuple(Words(text=part) for part in parts)


def _notes(ran: Exit, limit: float) -> list[str]:
    notes: list[str] = []
    if ran.late:
        notes.append(
            f"not done after {limit:g} s: ended. A longer timeout_s (at most {LONGEST}) or"
            " background may help"
        )
    elif ran.exit is None:
        notes.append("ended by a signal")
    elif ran.exit:
        notes.append(f"exit code {ran.exit}{_signal(ran.exit)}")
    if ran.left:
        notes.append("what it had left running was ended: use background for that")
    return notes


def _signal(code: int) -> str:
    try:
        return f": {signal.Signals(code - 128).name}"
    except ValueError:
        return ""


def _joined(text: str, notes: list[str]) -> str:
    said = text.rstrip("\n")
    told = f"({'; '.join(notes)})" if notes else ""
    return "\n".join(part for part in (said, told) if part) or "(no output)"


def _denied(text: str) -> bool:
    return is_refusal(text[-KEPT:])


def _hint(shell: Shell) -> str:
    folders = ", ".join(printable(str(folder)) for folder in shell.writable)
    return (
        f"commands can write only below {folders}: set unconfined if it must write elsewhere, or have its "
        "folder added to `sandbox.writable` in ~/.config/go-ent/config.yaml"
    )
