"""How does a short command run, and what did it say?"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from goent.domain.types import Value
from goent.proc.marks import new_mark, new_owner
from goent.proc.supervised import supervised

MAX_OUTPUT = 1024 * 1024
DRAIN = 0.5  # seconds for the last output, should a child of the command hold the pipe open


class Completed(Value, frozen=True, kw_only=True):
    """`exit` is None if the command did not end in time; the texts are the last of what it said."""

    exit: int | None
    output: str
    errors: str


async def run(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,  # noqa: ASYNC109 (running out of time is an outcome here, not an exception)
    stdin: bytes = b"",
    max_output: int = MAX_OUTPUT,
) -> Completed:
    """Run to the end or to the time limit; what the command left running ends with it."""
    said = bytearray()
    code: int | None = None
    mark = new_mark(new_owner("command"))
    async with supervised(command, cwd=cwd, env=env, mark=mark, grace=DRAIN) as process:
        with anyio.move_on_after(timeout):
            async with anyio.create_task_group() as pipes:
                pipes.start_soon(_feed, process.stdin, stdin)
                pipes.start_soon(_read, process.stdout, said, max_output)
                code = await process.wait()
                pipes.cancel_scope.deadline = anyio.current_time() + DRAIN
        errors = process.stderr
    return Completed(exit=code, output=said[-max_output:].decode(errors="replace"), errors=errors)


async def _feed(pipe: ByteSendStream, data: bytes) -> None:
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, OSError):
        if data:
            await pipe.send(data)
        await pipe.aclose()


async def _read(pipe: ByteReceiveStream, said: bytearray, kept: int) -> None:
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
        while True:
            said += await pipe.receive()
            if len(said) > 2 * kept:
                del said[:-kept]
