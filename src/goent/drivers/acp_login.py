"""How does an agent that demands a login get one?

By a method that the agent carries out itself, and only where there is no choice: the one that the
settings name, or its only one. Which of several, and what a person has to do in a terminal, is
theirs to decide: then they are told what the agent offers, and the exact command.
"""

import shlex
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from goent.acp.messages import AuthMethod
from goent.domain.errors import ProtocolError
from goent.drivers.acp_connection import PATIENCE, AgentConnection
from goent.drivers.acp_failures import AUTH_REQUIRED
from goent.rpc import RpcError

BY_AGENT, BY_TERMINAL = "agent", "terminal"
Methods = Sequence[AuthMethod]

T = TypeVar("T")


def chosen(methods: Methods, wanted: str = "") -> AuthMethod | None:
    """The method to log in by without asking anybody; None if there is a choice, or nothing to choose."""
    own = _own(methods)
    if wanted:
        return next((method for method in own if method.id == wanted), None)
    return own[0] if len(own) == 1 else None


async def logged_in(
    connection: AgentConnection,
    method: AuthMethod | None,
    ask: Callable[[], Awaitable[T]],
    *,
    patience: float = PATIENCE,
) -> tuple[T, bool]:
    """What was asked for, and whether it took a login. A refusal that remains is an `RpcError`."""
    try:
        return await ask(), False
    except RpcError as error:
        if error.code != AUTH_REQUIRED or method is None:
            raise
    try:
        await connection.authenticate(method.id, patience=patience)
    except (RpcError, ProtocolError) as error:
        why = error.message if isinstance(error, RpcError) else str(error)
        raise RpcError(AUTH_REQUIRED, f"its login with {method.id!r} failed: {why}") from error
    return await ask(), True


def in_words(method: AuthMethod) -> str:
    return f"{method.id!r} ({method.name})" if method.name else repr(method.id)


def remedy(command: Sequence[str], methods: Methods, setting: str, wanted: str = "") -> str:
    """What a person can do about a login that is demanded: in a terminal, or by naming a method."""
    ways = [_in_terminal(command, method) for method in methods if method.type == BY_TERMINAL]
    own = ", ".join(in_words(method) for method in _own(methods))
    if own and chosen(methods, wanted) is None:
        ways.append(f"set {setting} to one of {own}")
    if ways:
        return ", or ".join(ways)
    offered = f" (it offers: {own})" if own else ""
    return f"start {command[0]!r} in a terminal and log in there{offered}"


def _own(methods: Methods) -> list[AuthMethod]:
    """Those that the agent carries out itself, as most do."""
    return [method for method in methods if method.type in (None, BY_AGENT)]


def _in_terminal(command: Sequence[str], method: AuthMethod) -> str:
    """The protocol appends a method's arguments to those that the agent is started with."""
    env = [f"{name}={shlex.quote(value)}" for name, value in (method.env or {}).items()]
    words = " ".join((*env, shlex.join((*command, *(method.args or ())))))
    return f"run `{words}` in a terminal"
