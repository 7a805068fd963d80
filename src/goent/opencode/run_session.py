"""Runs one worker's only turn by `opencode run`, and tells what its end means.

OpenCode exports a session as JSON. Into a file, for what is left in a pipe when it exits gets lost.

It is 0 when a permission was refused, which ended the turn, and when the model said nothing. It is 1
with an error line that may only point to the log; so the log's errors go to standard error as well.

The prompt goes in on standard input, because OpenCode puts quotes context arguments; there it arrives
letter by letter, whatever it begins with. What comes out is told as it comes, so that a turn that
fails or is cancelled keeps what it has said. A part is printed when it is complete, not before.
"""

import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec
from anyio import to_thread
from anyio.abc import ByteSendStream

from goent.agents.opencode_program import (
    OPENCODE_NAME,
    check_program,
    opencode_data_folders,
    opencode_settings_folders,
)
from goent.agents.process_vitals import read_signs
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
    WorkerPasses,
    WorkerSpec,
)
from goent.domain.sandbox_port import ConfinedCommand
from goent.domain.types import PermissionAnswer, Prompt, Provider, Value
from goent.opencode.bundled_models import BundledModels
from goent.opencode.call_guard import (
    FOREIGN_TASK,
    BypassDetector,
    access_for_guarded_call,
    resumes_foreign_session,
)
from goent.opencode.opencode_process import first_start
from goent.opencode.opencode_translator import SUBAGENT_TOOL, RunTranscript
from goent.opencode.opencode_turn import classify_fault, database_error
from goent.opencode.process_launch import database_path
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
from goent.sandbox.process_sandbox import ProcessSandbox, SandboxedAgent
from goent.system.line_splitter import LineSplitter, OversizedLine

EXPORT_TIMEOUT_S = 60.0  # seconds for one session
MAX_SUBAGENTS = 50  # sessions that are looked at
_INTO_FILE = 'exec "$@" >"$0"'


class ExportedSession(ServerData, frozen=True, kw_only=True):
    """One session, as OpenCode exports it."""

    messages: tuple[ServerMessage, ...] = ()


async def find_subagent_bypass(
    sessions: Sequence[str],
    look: BypassDetector,
    *,
    program: Path,
    cwd: Path,
    env: Mapping[str, str],
) -> PermissionBypassed | None:
    """The first call of a subagent that ran and was never allowed; raises `WorkerError` if nobody can tell."""
    unread, known = [*sessions], set(sessions)
    while unread:
        if len(known) > MAX_SUBAGENTS:
            raise ProtocolError(f"more than {MAX_SUBAGENTS} subagents")
        for part in await _exported_parts(unread.pop(), program, cwd, env):
            if bypass := look.check(part, from_start=False):
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
            told = msgspec.json.decode(await anyio.Path(file).read_bytes(), type=ExportedSession)
        except (msgspec.DecodeError, OSError) as error:
            raise ProtocolError(f"`opencode export {session}` cannot be read: {error}") from error
    return [part for message in told.messages for part in message.parts]


RUN_COMMAND = "opencode run"
TAIL = 500
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_REFUSED_PERMISSION = re.compile(
    r"permission requested: (?P<tool>\S+) \((?P<what>.*)\); auto-rejecting"
)
_LOGGED_ERROR = re.compile(r'level=ERROR .*?\berror="(?P<error>(?:[^"\\]|\\.)*)"')
_UNEXPLAINED = "Check server logs"


class PermissionRefusal(Value, frozen=True, kw_only=True):
    """A permission that nobody could be asked for."""

    tool: str
    what: str


class ProcessEnding(Value, frozen=True, kw_only=True):
    """How the process ended: `code` is None if it had to be ended, `errors` are its last words."""

    code: int | None
    errors: str

    @property
    def plain(self) -> str:
        return _COLOURS.sub("", self.errors)

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
    told = fault.data.message
    if (told and _UNEXPLAINED not in told) or not ending.logged:
        return fault
    name, _, message = ending.logged.rpartition("Error: ")
    return SessionFault(
        name=f"{name}Error" if name else fault.name,
        data=ErrorData(message=message, status=fault.data.status),
    )


def _crash(ending: ProcessEnding) -> WorkerCrashed:
    code = ending.code
    how = "did not end by itself" if code is None else f"ended with code {code}"
    said = ending.logged or ending.plain[-TAIL:].strip()
    # Who was killed had no last words.
    last = f": {said}" if said and (code is None or code >= 0) else ""
    return WorkerCrashed(f"{RUN_COMMAND} {how}{last}", returncode=code, stderr=ending.plain)


def _rejection_error(transcript: RunTranscript, ending: ProcessEnding) -> PermissionDenied:
    call, refusals = transcript.rejected, list(ending.refusals())
    assert call
    last = refusals[-1] if refusals else PermissionRefusal(tool=call.tool, what=call.detail)
    return permission_denied(last.tool, last.what)


def permission_denied(tool: str, what: str) -> PermissionDenied:
    return PermissionDenied(
        f"permission {tool!r} was refused for {what!r}: the method 'cli' has nobody to "
        "ask; allow it (`permissions`, a rule), or use the method 'acp'"
    )


MAX_LINE_BYTES = 64 * 1024 * 1024
DRAIN_S = 0.5  # seconds for the last output, should a child of the process hold the pipe open
EXIT_TIMEOUT_S = 10.0  # seconds for the exit code, once the output has ended


class RunLaunch(Value, frozen=True, kw_only=True):
    """What a session is opened with. `agent` is the one that has the worker's rules.

    The process is in the folder `start`, and hears from the variable PWD where to work: an option
    would make it go there, and then it obeys what a repository says of modules (see `start_folder`).
    `catalogue` is all that the process has to know of models; without one, it knows every model.
    """

    spec: WorkerSpec
    program: Path
    start: Path
    env: Mapping[str, str]
    mark: str
    sandbox: ProcessSandbox
    passes: WorkerPasses
    gate_port: int | None
    agent: str
    start_timeout: float
    direct: bool
    instructions: tuple[Path, ...] = ()
    catalogue: BundledModels | None = None

    def variables(self) -> dict[str, str]:
        """The whole environment but for the mark. Reads files, at a first start large ones."""
        models = self.catalogue.variables(self.program, self.env) if self.catalogue else {}
        return {**self.env, **models}

    def confined(
        self, files: Sequence[str], env: Mapping[str, str]
    ) -> AbstractAsyncContextManager[ConfinedCommand]:
        """How to start the process inside its sandbox."""
        return self.sandbox.agent(
            SandboxedAgent(
                command=tuple(self.command(files)),
                env=env,
                roots=self.sandbox.writable_folders(self.spec.cwd),
                data_folders=opencode_data_folders(env),
                readable=opencode_settings_folders(env),
                ports=(self.gate_port,) if self.gate_port else (),
            )
        )

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

    def __init__(self, order: RunLaunch, waiting: Callable[[], float | None]) -> None:
        self._order = order
        self._waiting = waiting
        self._scope = anyio.CancelScope()
        self._child: SupervisedProcess | None = None
        self._used = False
        self._cancelled = False
        self._workdir = WorkerPaths(order.spec.cwd)
        self._guarded = False
        self._bypass_detector = BypassDetector()
        self._refused: AccessRequest | None = (
            None  # what nobody could be asked for; it ends the turn
        )
        self._refused_call = ""

    @property
    def token(self) -> str:
        return ""

    async def prompt(self, prompt: Prompt, emit: Emit) -> TurnStopReason:
        order = self._order
        if self._used:
            raise WorkerIsClosed(f"worker {order.spec.id!r} had its one turn; spawn another one")
        self._used = True
        provider, cwd = order.spec.provider, order.spec.cwd
        transcript = RunTranscript(provider, cwd, self._bypass_detector, direct=order.direct)
        ending = ProcessEnding(code=None, errors="")
        with self._scope:
            ending = await self._run(prompt, transcript, emit)
            await self._look_at_subagents(transcript, emit)
        if self._cancelled:
            return "cancelled"
        if transcript.bypass:
            raise transcript.bypass
        if transcript.has_session and not self._guarded:
            raise guard_missing(str(cwd))
        if self._refused:
            raise permission_denied(self._refused.permission, ", ".join(self._refused.patterns))
        if error := turn_failure(transcript, ending, provider, database_path(order.env)):
            raise error
        for refusal in ending.refusals():
            text = f"a subagent was refused {refusal.tool!r} for {refusal.what!r}"
            await emit(Noticed(text=f"{text}: the method 'cli' has nobody to ask"))
        return "end"

    async def cancel(self) -> None:
        """It need not be asked nicely: its session is nobody's to go on with."""
        self._cancelled = True
        if self._child:
            send_signal(self._child.pid, signal.SIGTERM)
        self._scope.cancel()

    async def answer(self, permission_id: str, option: PermissionAnswer, message: str = "") -> bool:
        raise RequestError(
            f"worker {self._order.spec.id!r} asks nothing, so {permission_id!r} has no {option}"
        )

    @property
    def is_loaded(self) -> bool:
        """A process whose guard never said so gets no model."""
        return self._guarded

    def mark_loaded(self, directory: str) -> None:
        self._guarded = True

    async def judge(self, call: GuardedCall) -> GuardVerdict:
        """By the worker's rules alone: nobody can be asked."""
        if resumes_foreign_session(call):
            return FOREIGN_TASK
        for access in access_for_guarded_call(call, self._workdir):
            action = decide_access(access, self._order.spec.rules)
            if action == "deny":
                return refusal_verdict(access, "by a rule of the user's")
            if action == "ask":
                if call.is_own:
                    self._refused, self._refused_call = access, call.call
                return refusal_verdict(access, "because the method 'cli' has nobody to ask")
        self._bypass_detector.allow(call.session, call.call)
        return GuardVerdict(allow=True)

    def shell_environment(self, session: str) -> Mapping[str, str]:
        """All its sessions are the worker's own, or of its subagents."""
        order = self._order
        confined = order.sandbox.shell_variables(order.spec.cwd, order.env)
        return {**order.passes.environment(order.spec.id), **confined}

    def hint(self, session: str, output: str) -> str:
        return self._order.sandbox.hint_for(self._order.spec.cwd, output, self._order.env)

    async def liveness(self) -> WorkerLiveness:
        waited = self._waiting()
        if waited is not None:
            return WorkerLiveness(alive=True, detail=f"it has waited {waited:.0f} s for the model")
        if self._child is None:
            return WorkerLiveness(alive=True, detail="it waits for another OpenCode's first start")
        return await read_signs(self._child, OPENCODE_NAME)

    async def _run(self, prompt: Prompt, transcript: RunTranscript, emit: Emit) -> ProcessEnding:
        order = self._order
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(first_start(database_path(order.env)))
            await check_program(order.program, order.env, patience=order.start_timeout)
            env = await to_thread.run_sync(order.variables)
            start = await stack.enter_async_context(order.confined(prompt.files, env))
            child = self._child = await stack.enter_async_context(
                supervised(
                    start.command,
                    cwd=order.start,
                    env=start.env,
                    mark=order.mark,
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
        """A call was refused or ran unasked, and is told by now; or all of them would be unasked."""
        refused = self._refused is not None and self._refused_call in transcript.ended
        return bool(refused or transcript.bypass or (transcript.has_session and not self._guarded))

    async def _look_at_subagents(self, transcript: RunTranscript, emit: Emit) -> None:
        if transcript.bypass or not transcript.subagents:
            return
        order = self._order
        try:
            transcript.bypass = await find_subagent_bypass(
                transcript.subagents,
                self._bypass_detector,
                program=order.program,
                cwd=order.start,
                env=order.env,
            )
        except WorkerError as error:
            await emit(Noticed(text=f"what its subagents ran could not be looked at: {error}"))


async def _emit_lines(
    lines: Sequence[bytes | OversizedLine], transcript: RunTranscript, emit: Emit
) -> None:
    for line in lines:
        if isinstance(line, OversizedLine):
            await emit(Noticed(text=f"a line of more than {MAX_LINE_BYTES} bytes was left out"))
            continue
        for event in transcript.read(line):
            await emit(event)


async def _receive(child: SupervisedProcess) -> bytes:
    """The next piece of output; empty when there will be none."""
    over = False
    while not over:
        over = child.returncode is not None  # then what is in the pipe comes at once, or never
        with anyio.move_on_after(DRAIN_S):
            try:
                return await child.stdout.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                return b""
    return b""


async def _send_prompt(pipe: ByteSendStream, data: bytes) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await pipe.send(data)
        await pipe.aclose()
