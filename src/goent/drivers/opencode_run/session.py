"""How does one worker take its one turn by `opencode run`?

The prompt goes in on standard input, because OpenCode puts quotes around arguments; there it arrives
letter by letter, whatever it begins with. What comes out is told as it comes, so that a turn that
fails or is cancelled keeps what it has said. A part is printed when it is complete, not before.
"""

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from pathlib import Path

import anyio
from anyio import to_thread
from anyio.abc import ByteSendStream

from goent.domain.errors import RequestError, WorkerError, WorkerIsClosed
from goent.domain.events import Noticed
from goent.domain.guard import GuardedCall, Verdict
from goent.domain.ports import Emit, Signs, StopReason, WorkerPasses, WorkerSpec
from goent.domain.sandbox import Start
from goent.domain.types import Answer, Prompt, Value
from goent.drivers.ground import Ground
from goent.drivers.opencode.catalogue import Catalogue
from goent.drivers.opencode.conversation import refused, unguarded
from goent.drivers.opencode.environment import database, own_folders, settings_folders
from goent.drivers.opencode.first_start import first_start
from goent.drivers.opencode.guard import STRANGER, goes_astray, matters
from goent.drivers.opencode.second_look import SecondLook
from goent.drivers.opencode.version import check_program
from goent.drivers.opencode_run.lines import Transcript
from goent.drivers.opencode_run.subagents import look_at_subagents
from goent.drivers.opencode_run.verdict import Ending, denied, failure
from goent.drivers.questions import Matter, verdict
from goent.drivers.signs import look
from goent.drivers.tasks import task_group
from goent.lines import LineSplitter, TooLong
from goent.proc import Supervised, supervised
from goent.proc.marks import send
from goent.sandbox.sandbox import Agent, Sandbox

LONGEST_LINE = 64 * 1024 * 1024
DRAIN = 0.5  # seconds for the last output, should a child of the process hold the pipe open
EXIT = 10.0  # seconds for the exit code, once the output has ended


class Order(Value, frozen=True, kw_only=True):
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
    sandbox: Sandbox
    passes: WorkerPasses
    gate_port: int | None
    agent: str
    start_timeout: float
    direct: bool
    instructions: tuple[Path, ...] = ()
    catalogue: Catalogue | None = None

    def variables(self) -> dict[str, str]:
        """The whole environment but for the mark. Reads files, at a first start large ones."""
        models = self.catalogue.variables(self.program, self.env) if self.catalogue else {}
        return {**self.env, **models}

    def confined(
        self, files: Sequence[str], env: Mapping[str, str]
    ) -> AbstractAsyncContextManager[Start]:
        """How to start the process inside its sandbox."""
        return self.sandbox.agent(
            Agent(
                command=tuple(self.command(files)),
                env=env,
                roots=self.sandbox.writes(self.spec.cwd),
                own=own_folders(env),
                shown=settings_folders(env),
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

    def __init__(self, order: Order, waiting: Callable[[], float | None]) -> None:
        self._order = order
        self._waiting = waiting
        self._scope = anyio.CancelScope()
        self._child: Supervised | None = None
        self._used = False
        self._cancelled = False
        self._ground = Ground(order.spec.cwd)
        self._guarded = False
        self._second_look = SecondLook()
        self._refused: Matter | None = None  # what nobody could be asked for; it ends the turn
        self._refused_call = ""

    @property
    def token(self) -> str:
        return ""

    async def prompt(self, prompt: Prompt, emit: Emit) -> StopReason:
        order = self._order
        if self._used:
            raise WorkerIsClosed(f"worker {order.spec.id!r} had its one turn; spawn another one")
        self._used = True
        provider, cwd = order.spec.provider, order.spec.cwd
        transcript = Transcript(provider, cwd, self._second_look, direct=order.direct)
        ending = Ending(code=None, errors="")
        with self._scope:
            ending = await self._run(prompt, transcript, emit)
            await self._look_at_subagents(transcript, emit)
        if self._cancelled:
            return "cancelled"
        if transcript.bypass:
            raise transcript.bypass
        if transcript.began and not self._guarded:
            raise unguarded(str(cwd))
        if self._refused:
            raise denied(self._refused.permission, ", ".join(self._refused.patterns))
        if error := failure(transcript, ending, provider, database(order.env)):
            raise error
        for refusal in ending.refusals():
            text = f"a subagent was refused {refusal.tool!r} for {refusal.what!r}"
            await emit(Noticed(text=f"{text}: the method 'cli' has nobody to ask"))
        return "end"

    async def cancel(self) -> None:
        """It need not be asked nicely: its session is nobody's to go on with."""
        self._cancelled = True
        if self._child:
            send(self._child.pid, signal.SIGTERM)
        self._scope.cancel()

    async def answer(self, permission_id: str, option: Answer, message: str = "") -> bool:
        raise RequestError(
            f"worker {self._order.spec.id!r} asks nothing, so {permission_id!r} has no {option}"
        )

    @property
    def in_force(self) -> bool:
        """A process whose guard never said so gets no model."""
        return self._guarded

    def loaded(self, directory: str) -> None:
        self._guarded = True

    async def judge(self, call: GuardedCall) -> Verdict:
        """By the worker's rules alone: nobody can be asked."""
        if goes_astray(call):
            return STRANGER
        for matter in matters(call, self._ground):
            action = verdict(matter, self._order.spec.rules)
            if action == "deny":
                return refused(matter, "by a rule of the user's")
            if action == "ask":
                if call.is_own:
                    self._refused, self._refused_call = matter, call.call
                return refused(matter, "because the method 'cli' has nobody to ask")
        self._second_look.allow(call.session, call.call)
        return Verdict(allow=True)

    def shell(self, session: str) -> Mapping[str, str]:
        """All its sessions are the worker's own, or of its subagents."""
        order = self._order
        confined = order.sandbox.shell_variables(order.spec.cwd, order.env)
        return {**order.passes.environment(order.spec.id), **confined}

    def hint(self, session: str, output: str) -> str:
        return self._order.sandbox.hint_for(self._order.spec.cwd, output, self._order.env)

    async def signs(self) -> Signs:
        waited = self._waiting()
        if waited is not None:
            return Signs(alive=True, detail=f"it has waited {waited:.0f} s for the model")
        if self._child is None:
            return Signs(alive=True, detail="it waits for another OpenCode's first start")
        return await look(self._child)

    async def _run(self, prompt: Prompt, transcript: Transcript, emit: Emit) -> Ending:
        order = self._order
        async with AsyncExitStack() as stack:
            made = await stack.enter_async_context(first_start(database(order.env)))
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
                tasks.start_soon(_feed, child.stdin, prompt.text.encode())
                await self._listen(child, transcript, emit, made)
                tasks.cancel_scope.cancel()
            with anyio.move_on_after(EXIT):
                await child.wait()
            return Ending(code=child.returncode, errors=child.stderr)

    async def _listen(
        self, child: Supervised, transcript: Transcript, emit: Emit, made: Callable[[], None]
    ) -> None:
        splitter = LineSplitter(LONGEST_LINE)
        while chunk := await _receive(child):
            made()
            await _tell(splitter.feed(chunk), transcript, emit)
            if self._must_end(transcript):
                send(child.pid, signal.SIGTERM)
                return
        rest = splitter.rest()
        if isinstance(rest, TooLong):
            await _tell([rest], transcript, emit)
            return
        for event in transcript.read_last(rest):
            await emit(event)

    def _must_end(self, transcript: Transcript) -> bool:
        """A call was refused or ran unasked, and is told by now; or all of them would be unasked."""
        refused = self._refused is not None and self._refused_call in transcript.ended
        return bool(refused or transcript.bypass or (transcript.began and not self._guarded))

    async def _look_at_subagents(self, transcript: Transcript, emit: Emit) -> None:
        if transcript.bypass or not transcript.subagents:
            return
        order = self._order
        try:
            transcript.bypass = await look_at_subagents(
                transcript.subagents,
                self._second_look,
                program=order.program,
                cwd=order.start,
                env=order.env,
            )
        except WorkerError as error:
            await emit(Noticed(text=f"what its subagents ran could not be looked at: {error}"))


async def _tell(lines: Sequence[bytes | TooLong], transcript: Transcript, emit: Emit) -> None:
    for line in lines:
        if isinstance(line, TooLong):
            await emit(Noticed(text=f"a line of more than {LONGEST_LINE} bytes was left out"))
            continue
        for event in transcript.read(line):
            await emit(event)


async def _receive(child: Supervised) -> bytes:
    """The next piece of output; empty when there will be none."""
    over = False
    while not over:
        over = child.returncode is not None  # then what is in the pipe comes at once, or never
        with anyio.move_on_after(DRAIN):
            try:
                return await child.stdout.receive()
            except (anyio.EndOfStream, anyio.ClosedResourceError):
                return b""
    return b""


async def _feed(pipe: ByteSendStream, data: bytes) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await pipe.send(data)
        await pipe.aclose()
