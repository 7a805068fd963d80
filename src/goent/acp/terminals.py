"""What does an agent ask of a client that runs commands for it?"""

from goent.acp.base import Message
from goent.acp.servers import Pair

CREATE = "terminal/create"
OUTPUT = "terminal/output"
WAIT_FOR_EXIT = "terminal/wait_for_exit"
KILL = "terminal/kill"
RELEASE = "terminal/release"


class CreateTerminalParams(Message, frozen=True, kw_only=True):
    """Run a command where the user can see it."""

    session_id: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[Pair, ...] = ()
    cwd: str | None = None
    output_byte_limit: int | None = None


class CreatedTerminal(Message, frozen=True, kw_only=True):
    """It runs."""

    terminal_id: str


class TerminalParams(Message, frozen=True, kw_only=True):
    """All that the other requests say."""

    session_id: str
    terminal_id: str


class ExitStatus(Message, frozen=True, kw_only=True):
    """How it ended: one of the two."""

    exit_code: int | None = None
    signal: str | None = None


class TerminalOutput(Message, frozen=True, kw_only=True):
    """What it has said, and how it ended once it has."""

    output: str
    truncated: bool = False
    exit_status: ExitStatus | None = None
