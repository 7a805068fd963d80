"""Runs one worker's only turn by `opencode run`, and decides how it ended.

The prompt is sent on standard input, where it arrives unchanged: OpenCode puts quotes around
arguments. Output is passed on as it comes, so that a turn that fails or is cancelled keeps it.
OpenCode prints a part when it is complete.

The exit code says little: it is 0 also when a refused permission ended the turn, or the model said
nothing, and 1 comes with an error line that may only point to the log. So the log's errors go to
standard error too.
"""

import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import ByteSendStream

from goent.agents.opencode_program import OPENCODE_NAME, check_program
from goent.agents.process_vitals import read_signs, without_colours
from goent.agents.worker_paths import WorkerPaths
from goent.domain.errors import (
    NothingSaid,
    PermissionBypassed,
    PermissionDenied,
    ProtocolError,
    RequestError,
    WorkerCrashed,
    WorkerError,
    WorkerIsClosed,
)
from goent.domain.events import Noticed
from goent.domain.ports import (
    Emit,
    GuardedCall,
    GuardVerdict,
    TurnStopReason,
    WorkerLiveness,
    WorkerSpec,
)
from goent.domain.types import PermissionAnswer, Prompt, Provider, Value
from goent.opencode.call_guard import (
    FOREIGN_TASK,
    BypassDetector,
    access_for_guarded_call,
    resumes_foreign_session,
)
from goent.opencode.opencode_process import first_start
from goent.opencode.opencode_translator import SUBAGENT_TOOL, RunTranscript
from goent.opencode.opencode_turn import classify_fault, database_error
from goent.opencode.process_launch import ProgramLaunch
from goent.opencode.server_api import (
    ErrorData,
    MessagePart,
    ServerData,
    ServerMessage,
    SessionFault,
)
from goent.opencode.session import guard_missing, refusal_verdict
from goent.permissions.access_rules import AccessRequest, decide_access
from goent.proc.child_process import SupervisedProcess, run_command, supervised
from goent.proc.concurrency import task_group
from goent.proc.process_table import send_signal
from goent.system.line_splitter import LineSplitter, OversizedLine

EXPORT_TIMEOUT_S = 60.0  # for one session
MAX_SUBAGENTS = 50  # whose sessions are checked
# An export goes into a file: what is left in a pipe when OpenCode exits gets lost.
_INTO_FILE = 'exec "$@" >"$0"'


class ExportedSession(ServerData, frozen=True, kw_only=True):
    """One session, as OpenCode exports it."""

    messages: tuple[ServerMessage, ...] = ()


async def find_subagent_bypass(
    sessions: Sequence[str],
    bypass_detector: BypassDetector,
    *,
    program: Path,
    cwd: Path,
    env: Mapping[str, str],
) -> PermissionBypassed | None:
    """The first call of a subagent that ran without permission; raises `WorkerError` if unknown."""
    unread, known = [*sessions], set(sessions)
    while unread:
        if len(known) > MAX_SUBAGENTS:
            raise ProtocolError(f"more than {MAX_SUBAGENTS} subagents")
        for part in await _exported_parts(unread.pop(), program, cwd, env):
            if bypass := bypass_detector.check(part, from_start=False):
                return bypass
            nested = part.call_state.subagent if part.tool == SUBAGENT_TOOL else ""
            if nested and nested not in known:
                known.add(nested)
                unread.append(nested)
    return None


async def _exported_parts(
    session: str, program: Path, cwd: Path, env: Mapping[str, str]
) -> Sequence[MessagePart]:
    with TemporaryDirectory(prefix="goent-") as folder:
        file = Path(folder, "session.json")
        command = (str(program), "export", "--pure", session)
        done = await run_command(
            ["/bin/sh", "-c", _INTO_FILE, str(file), *command],
            cwd=cwd,
            env=env,
            timeout=EXPORT_TIMEOUT_S,
        )
        if done.exit != 0:
            raise WorkerError(f"`opencode export {session}` ended with {done.exit}: {done.errors}")
        try:
            exported = msgspec.json.decode(
                await anyio.Path(file).read_bytes(), type=ExportedSession
            )
        except (msgspec.DecodeError, OSError) as error:
            raise ProtocolError(f"`opencode export {session}` cannot be read: {error}") from error
    return [part for message in exported.messages for part in message.parts]


RUN_COMMAND = "opencode run"
MAX_STDERR = 500  # characters in a message
_REFUSED_PERMISSION = re.compile(
    r"permission requested: (?P<tool>\S+) \((?P<what>.*)\); auto-rejecting"
)
_LOGGED_ERROR = re.compile(r'level=ERROR .*?\berror="(?P<error>(?:[^"\\]|\\.)*)"')
_UNEXPLAINED = "Check server logs"


class PermissionRefusal(Value, frozen=True, kw_only=True):
    """A permission that was refused because nobody could be asked."""

    tool: str
    what: str


class ProcessEnding(Value, frozen=True, kw_only=True):
    """How the process ended: `code` is None if it was killed, `errors` is its standard error."""

    code: int | None
    errors: str

    @property
    def plain(self) -> str:
        return without_colours(self.errors)

    def refusals(self) -> Iterator[PermissionRefusal]:
        for found in _REFUSED_PERMISSION.finditer(self.plain):
            yield PermissionRefusal(tool=found["tool"], what=found["what"])

    @property
    def logged(self) -> str:
        """The last error in the log, without the trace behind it."""
        found = [match["error"] for match in _LOGGED_ERROR.finditer(self.plain)]
        try:
            return msgspec.json.decode(f'"{found[-1]}"', type=str) if found else ""
        except msgspec.DecodeError:
            return found[-1]


def turn_failure(
    transcript: RunTranscript, ending: ProcessEnding, provider: Provider, database: Path
) -> WorkerError | None:
    """Why the turn failed; None if it did not."""
    if transcript.fault:
        return classify_fault(_with_logged_error(transcript.fault, ending))
    if ending.code != 0:
        return database_error(ending.plain, database) or _crash(ending)
    if transcript.cut_off:
        return ProtocolError(
            f"{RUN_COMMAND} ended in the middle of a line, {transcript.cut_off} bytes into it: an answer this "
            "long may get lost on its way out; use the method 'acp', 'serve' or 'api'"
        )
    if transcript.rejected:
        return _rejection_error(transcript, ending)
    if not transcript.has_output:
        return NothingSaid(
            f"{provider.opencode_model} ended its turn without a word and without a tool call"
        )
    return None


def _with_logged_error(fault: SessionFault, ending: ProcessEnding) -> SessionFault:
    message = fault.data.message
    if (message and _UNEXPLAINED not in message) or not ending.logged:
        return fault
    name, _, message = ending.logged.rpartition("Error: ")
    return SessionFault(
        name=f"{name}Error" if name else fault.name,
        data=ErrorData(message=message, status=fault.data.status),
    )


def _crash(ending: ProcessEnding) -> WorkerCrashed:
    code = ending.code
    how = "did not end by itself" if code is None else f"ended with code {code}"
    output = ending.logged or ending.plain[-MAX_STDERR:].strip()
    # A killed process had no last words.
    last = f": {output}" if output and (code is None or code >= 0) else ""
    return WorkerCrashed(f"{RUN_COMMAND} {how}{last}", returncode=code, stderr=ending.plain)


def _rejection_error(transcript: RunTranscript, ending: ProcessEnding) -> PermissionDenied:
    call, refusals = transcript.rejected, list(ending.refusals())
    assert call
    last = refusals[-1] if refusals else PermissionRefusal(tool=call.tool, what=call.detail)
    return _permission_denied(last.tool, last.what)


def _permission_denied(tool: str, what: str) -> PermissionDenied:
    return PermissionDenied(
        f"permission {tool!r} was refused for {what!r}: the method 'cli' has nobody to "
        "ask; allow it (`permissions`, a rule), or use the method 'acp'"
    )


MAX_LINE_BYTES = 64 * 1024 * 1024
DRAIN_TIMEOUT_S = 0.5  # for the last output, if a child of the process holds the pipe open
EXIT_TIMEOUT_S = 10.0  # for the exit code, once the output has ended


class RunLaunch(ProgramLaunch, frozen=True, kw_only=True):
    """How the process is started. `agent` is the one that has the worker's rules.

    It starts in a folder of ours and learns the worker's directory from the variable PWD: an option
    would make it change there, and obey the repository's module settings (see `start_folder`).
    """

    spec: WorkerSpec
    mark: str
    agent: str
    direct: bool
    instructions: tuple[Path, ...] = ()

    def command(self, files: Sequence[str]) -> list[str]:
        provider = self.spec.provider
        paths = [*map(str, self.instructions), *files]
        return [
            *(str(self.program), "run", "--format=json", "--thinking"),
            *("--print-logs", "--log-level=ERROR"),
            *(f"--model={provider.opencode_model}", f"--agent={self.agent}"),
            f"--title={self.spec.id}",
            *(f"--file={self.spec.cwd / path}" for path in paths),
        ]


class RunSession:
    """The port `Session`, for one prompt."""

    def __init__(self, launch: RunLaunch, waiting: Callable[[], float | None]) -> None:
        self._launch = launch
        self._waiting = waiting
        self._scope = anyio.CancelScope()
        self._child: SupervisedProcess | None = None
        self._used = False
        self._cancelled = False
        self._workdir = WorkerPaths(launch.spec.cwd)
        self._guarded = False
        self._bypass_detector = BypassDetector()
        self._refused: AccessRequest | None = None  # because nobody can be asked; ends the turn
        self._refused_call = ""

    @property
    def token(self) -> str:
        return ""

    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        launch = self._launch
        if self._used:
            raise WorkerIsClosed(f"worker {launch.spec.id!r} had its only turn; spawn another one")
        self._used = True
        provider, cwd = launch.spec.provider, launch.spec.cwd
        transcript = RunTranscript(provider, cwd, self._bypass_detector, direct=launch.direct)
        ending = ProcessEnding(code=None, errors="")
        with self._scope:
            ending = await self._run(prompt, transcript, emit)
            await self._check_subagents(transcript, emit)
        if self._cancelled:
            return "cancelled"
        if transcript.bypass:
            raise transcript.bypass
        if transcript.has_session and not self._guarded:
            raise guard_missing(str(cwd))
        if self._refused:
            raise _permission_denied(self._refused.permission, ", ".join(self._refused.patterns))
        if error := turn_failure(transcript, ending, provider, launch.database):
            raise error
        for refusal in ending.refusals():
            text = f"a subagent was refused {refusal.tool!r} for {refusal.what!r}"
            await emit(Noticed(text=f"{text}: the method 'cli' has nobody to ask"))
        return "end"

    async def cancel(self) -> None:
        """End the process immediately: its session is never resumed."""
        self._cancelled = True
        if self._child:
            send_signal(self._child.pid, signal.SIGTERM)
        self._scope.cancel()

    async def answer(self, permission_id: str, option: PermissionAnswer, message: str = "") -> bool:
        raise RequestError(
            f"worker {self._launch.spec.id!r} asks nothing, so {permission_id!r} has no {option}"
        )

    @property
    def is_loaded(self) -> bool:
        """Whether the guard has loaded; a process without it gets no model."""
        return self._guarded

    def mark_loaded(self, directory: str) -> None:
        self._guarded = True

    async def judge(self, call: GuardedCall) -> GuardVerdict:
        """Decide by the worker's rules alone: nobody can be asked."""
        if resumes_foreign_session(call):
            return FOREIGN_TASK
        for access in access_for_guarded_call(call, self._workdir):
            action = decide_access(access, self._launch.spec.rules)
            if action == "deny":
                return refusal_verdict(access, "by a rule of the user's")
            if action == "ask":
                if call.is_own:
                    self._refused, self._refused_call = access, call.call
                return refusal_verdict(access, "because the method 'cli' has nobody to ask")
        self._bypass_detector.allow(call.session, call.call)
        return GuardVerdict(allow=True)

    def shell_environment(self, session: str) -> Mapping[str, str]:
        """The same for all sessions: they are the worker's own or its subagents'."""
        return self._launch.shell_variables(self._launch.spec.id, self._launch.spec.cwd)

    def hint(self, session: str, output: str) -> str:
        return self._launch.hint(self._launch.spec.cwd, output)

    async def liveness(self) -> WorkerLiveness:
        waited = self._waiting()
        if waited is not None:
            return WorkerLiveness(alive=True, detail=f"it has waited {waited:.0f} s for the model")
        if self._child is None:
            return WorkerLiveness(alive=True, detail="waiting for another OpenCode's first start")
        return await read_signs(self._child, OPENCODE_NAME)

    async def _run(self, prompt: Prompt, transcript: RunTranscript, emit: Emit) -> ProcessEnding:
        launch = self._launch
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(first_start(launch.database))
            await check_program(launch.program, launch.env, patience=launch.start_timeout)
            env = await to_thread.run_sync(launch.variables)
            start = await stack.enter_async_context(
                launch.confined(launch.command(prompt.files), env)
            )
            child = self._child = await stack.enter_async_context(
                supervised(
                    start.command,
                    cwd=launch.cwd,
                    env=start.env,
                    mark=launch.mark,
                    inner_mark=start.mark,
                )
            )
            async with task_group() as tasks:
                tasks.start_soon(_send_prompt, child.stdin, prompt.text.encode())
                await self._listen(child, transcript, emit, made)
                tasks.cancel_scope.cancel()
            with anyio.move_on_after(EXIT_TIMEOUT_S):
                await child.wait()
            return ProcessEnding(code=child.returncode, errors=child.stderr)

    async def _listen(
        self,
        child: SupervisedProcess,
        transcript: RunTranscript,
        emit: Emit,
        made: Callable[[], None],
    ) -> None:
        splitter = LineSplitter(MAX_LINE_BYTES)
        while chunk := await _receive(child):
            made()
            await _emit_lines(splitter.feed(chunk), transcript, emit)
            if self._must_end(transcript):
                send_signal(child.pid, signal.SIGTERM)
                return
        rest = splitter.finish()
        if isinstance(rest, OversizedLine):
            await _emit_lines([rest], transcript, emit)
            return
        for event in transcript.read_last(rest):
            await emit(event)

    def _must_end(self, transcript: RunTranscript) -> bool:
        """Whether a call was refused and reported, or ran without permission, or any would."""
        refused = self._refused is not None and self._refused_call in transcript.ended
        return bool(refused or transcript.bypass or (transcript.has_session and not self._guarded))

    async def _check_subagents(self, transcript: RunTranscript, emit: Emit) -> None:
        if transcript.bypass or not transcript.subagents:
            return
        launch = self._launch
        try:
            transcript.bypass = await find_subagent_bypass(
                transcript.subagents,
                self._bypass_detector,
                program=launch.program,
                cwd=launch.cwd,
                env=launch.env,
            )
        except WorkerError as error:
            await emit(Noticed(text=f"the calls of its subagents could not be checked: {error}"))


async def _emit_lines(
    lines: Sequence[bytes | OversizedLine], transcript: RunTranscript, emit: Emit
) -> None:
    for line in lines:
        if isinstance(line, OversizedLine):
            await emit(Noticed(text=f"a line of more than {MAX_LINE_BYTES} bytes was skipped"))
            continue
        for event in transcript.read(line):
            await emit(event)


async def _receive(child: SupervisedProcess) -> bytes:
    """The next piece of output; empty at its end."""
    over = False
    while not over:
        over = child.returncode is not None  # then the rest is in the pipe by now, or never will be
        with anyio.move_on_after(DRAIN_TIMEOUT_S):
            try:
                return await child.stdout.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                return b""
    return b""


async def _send_prompt(pipe: ByteSendStream, data: bytes) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await pipe.send(data)
        await pipe.aclose()
