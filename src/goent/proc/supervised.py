"""How does a child process end, whatever happens to us?

When the context closes it is told by the end of its input; whoever still carries its mark then is
brought down, see `trees`. Every wait is bounded and shielded from cancellation.
"""

import subprocess
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.lowlevel import checkpoint

from goent.domain.errors import WorkerCrashed
from goent.proc import table
from goent.proc.marks import marked_command, marked_environment
from goent.proc.programs import located
from goent.proc.short import cannot_start
from goent.proc.tail import Tail
from goent.proc.trees import bring_down, exit_of

GRACE = 2.0  # seconds between one way of asking and the next
DRAIN = 0.5  # for the last output, should somebody hold the pipe open whom no mark finds
STDERR_KEPT = 16 * 1024


class Supervised:
    """A running child. It exists only inside `supervised`."""

    def __init__(
        self,
        process: Process,
        mark: str,
        stderr: Tail,
        before: Collection[int],
        inner_mark: str,
    ) -> None:
        assert process.stdin and process.stdout
        self.stdin: ByteSendStream = process.stdin
        self.output = Output(process.stdout)
        self.pid = process.pid
        self.mark = mark
        self._process = process
        self._stderr = stderr
        self.before = before
        self.inner_mark = inner_mark

    @property
    def stdout(self) -> ByteReceiveStream:
        return self.output

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    @property
    def stderr(self) -> str:
        """The last words on standard error, so far."""
        return self._stderr.text.strip()

    async def wait(self) -> int:
        """The exit code, once there is one."""
        # asyncio's own wait() returns only when every pipe is closed, and a grandchild can hold
        # one open; the return code itself is set at once.
        return await exit_of(self)


@asynccontextmanager
async def supervised(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    mark: str,
    inner_mark: str = "",
    grace: float = GRACE,
) -> AsyncGenerator[Supervised]:
    """Leaving the context leaves no process behind, however it is left.

    `inner_mark` is that of its sandbox, by which a process is found that cleared its environment.
    """
    with Tail(STDERR_KEPT) as stderr:
        before = table.present()
        environ = marked_environment(env, mark)
        process = await _start(marked_command(command, mark), cwd, environ, stderr)
        child = Supervised(process, mark, stderr, before, inner_mark)
        try:
            yield child
        finally:
            with anyio.CancelScope(shield=True):
                await _bring_down(child, grace)
                await child.output.end()


async def _start(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], stderr: Tail
) -> Process:
    process: Process | None = None
    try:
        with anyio.CancelScope(shield=True):  # a child half started would be nobody's
            process = await anyio.open_process(
                located(command, env),
                cwd=cwd,
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr.writer,
                start_new_session=True,
            )
    except OSError as error:
        raise WorkerCrashed(cannot_start(command, cwd, error)) from error
    finally:
        stderr.close_writer()
    assert process
    return process


async def _bring_down(child: Supervised, grace: float) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        await child.stdin.aclose()
    with anyio.move_on_after(grace):
        await child.wait()  # only the child heard the end of its input
    await bring_down(child, grace)


class Output(ByteReceiveStream):
    """What a child says. It stays open until the child is gone, whoever closes it before."""

    def __init__(self, stream: ByteReceiveStream) -> None:
        self._stream = stream
        self._closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        if self._closed:
            raise anyio.ClosedResourceError
        return await self._stream.receive(max_bytes)

    async def aclose(self) -> None:
        self._closed = True
        await checkpoint()

    async def end(self) -> None:
        """Read what nobody did: asyncio sees the end of a pipe, and lets go of it, only then."""
        with anyio.move_on_after(DRAIN), suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            while True:
                await self._stream.receive()
        await self._stream.aclose()
