"""How is a directory made quick before the first real prompt in it?

OpenCode boots a directory with the first prompt there that reaches a model, which takes seconds.
So a throwaway session asks the gate's own model, which costs nothing, and is deleted.
"""

from contextlib import suppress
from pathlib import Path

import anyio

from goent.acp.content import Text
from goent.domain.errors import ProtocolError, WorkerError
from goent.domain.ports import Gate
from goent.drivers.opencode.content import WARM
from goent.drivers.opencode.process import OpenCodeProcess
from goent.rpc import RpcError

PATIENCE = 60.0


async def boot(process: OpenCodeProcess, gate: Gate, cwd: Path) -> None:
    """Raises a `WorkerError` if the directory could not be booted."""
    try:
        session = (await process.connection.new_session(str(cwd))).session_id
        gate.bind(token=process.token, session=session, worker=None)
        try:
            await process.connection.set_model(session, WARM)
            await process.connection.prompt(session, [Text(text="ok")], timeout=PATIENCE)
        finally:
            await _forget(process, gate, session)
    except RpcError as error:
        raise ProtocolError(f"warming up {str(cwd)!r} failed: {error.message}") from error


async def _forget(process: OpenCodeProcess, gate: Gate, session: str) -> None:
    gate.unbind(session)
    with (
        anyio.CancelScope(shield=True),
        anyio.move_on_after(5),
        suppress(WorkerError, RpcError, TimeoutError),
    ):
        await process.connection.close_session(session)
        await process.inner.delete(session)
