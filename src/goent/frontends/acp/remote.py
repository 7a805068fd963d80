"""How are files read and commands run by the client, in its editor and its terminals?"""

import signal
from collections.abc import Mapping
from errno import EIO
from pathlib import Path
from typing import TypeVar

from goent.acp import terminals
from goent.acp.asks import (
    FS_READ_TEXT_FILE,
    FS_WRITE_TEXT_FILE,
    ReadTextFileParams,
    ReadTextFileResult,
    WriteTextFileParams,
)
from goent.acp.servers import Pair
from goent.acp.terminals import (
    CreatedTerminal,
    CreateTerminalParams,
    ExitStatus,
    TerminalOutput,
    TerminalParams,
)
from goent.frontends.acp.refusals import NOT_FOUND
from goent.rpc import BadReply, ConnectionLost, Peer, RpcError

PATIENCE = 60.0  # seconds for an editor to hand over a file, or to start a command

T = TypeVar("T")


class RemoteFiles:
    """Files as the client's editor has them."""

    def __init__(self, peer: Peer, session_id: str) -> None:
        self._peer = peer
        self._session_id = session_id

    async def read(self, path: Path) -> str:
        params = ReadTextFileParams(session_id=self._session_id, path=str(path))
        reply = await _asked(self._peer, FS_READ_TEXT_FILE, params, ReadTextFileResult, str(path))
        return reply.content

    async def write(self, path: Path, text: str) -> None:
        params = WriteTextFileParams(session_id=self._session_id, path=str(path), content=text)
        await _asked(self._peer, FS_WRITE_TEXT_FILE, params, object, str(path))


class RemoteTerminals:
    """Commands that the client runs."""

    def __init__(self, peer: Peer, session_id: str) -> None:
        self._peer = peer
        self._session_id = session_id

    async def create(
        self,
        command: str,
        arguments: tuple[str, ...],
        cwd: Path,
        env: Mapping[str, str],
        limit: int,
    ) -> "RemoteTerminal":
        params = CreateTerminalParams(
            session_id=self._session_id,
            command=command,
            args=arguments,
            env=tuple(Pair(name=name, value=value) for name, value in env.items()),
            cwd=str(cwd),
            output_byte_limit=limit,
        )
        created = await _asked(self._peer, terminals.CREATE, params, CreatedTerminal, command)
        return RemoteTerminal(self._peer, self._session_id, created.terminal_id)


class RemoteTerminal:
    """One of them."""

    def __init__(self, peer: Peer, session_id: str, terminal_id: str) -> None:
        self._peer = peer
        self._params = TerminalParams(session_id=session_id, terminal_id=terminal_id)

    @property
    def id(self) -> str:
        return self._params.terminal_id

    async def output(self) -> tuple[str, int | None]:
        said = await _asked(self._peer, terminals.OUTPUT, self._params, TerminalOutput, self.id)
        return said.output, None if said.exit_status is None else _code(said.exit_status)

    async def wait(self) -> int | None:
        ended = await _asked(
            self._peer, terminals.WAIT_FOR_EXIT, self._params, ExitStatus, self.id, patience=None
        )
        return _code(ended)

    async def kill(self) -> None:
        await _asked(self._peer, terminals.KILL, self._params, object, self.id)

    async def release(self) -> None:
        await _asked(self._peer, terminals.RELEASE, self._params, object, self.id)


async def _asked(
    peer: Peer,
    method: str,
    params: object,
    result: type[T],
    what: str,
    *,
    patience: float | None = PATIENCE,
) -> T:
    """Raises `OSError`: to a tool, a client is where its files are."""
    try:
        return await peer.request(method, params, result=result, timeout=patience)
    except RpcError as error:
        if error.code == NOT_FOUND:
            raise FileNotFoundError(f"the client has no {what!r}: {error.message}") from error
        raise OSError(EIO, f"the client refused {method!r}: {error.message}", what) from error
    except BadReply as error:
        raise OSError(EIO, f"the client's reply is of no use: {error}", what) from error
    except ConnectionLost as error:
        raise BrokenPipeError(f"the client is gone: {error}") from error


def _code(status: ExitStatus) -> int:
    """As a shell says it: 128 and the signal's number for a command that was killed."""
    if status.exit_code is not None:
        return status.exit_code
    try:
        return 128 + signal.Signals[(status.signal or "").upper()]
    except KeyError:
        return 128
