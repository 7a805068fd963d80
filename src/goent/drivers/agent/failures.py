"""What does an agent's refusal mean to the caller?"""

import msgspec
from msgspec import Raw, Struct

from goent.acp.messages import AuthMethod
from goent.domain.errors import NothingSaid, ProviderRefused, WorkerError
from goent.drivers import acp_login
from goent.drivers.acp_failures import AUTH_REQUIRED, by_words
from goent.drivers.agent.launch import Launch
from goent.llm import calm
from goent.rpc import RpcError
from goent.upstream.told import of_kind, told_by_gateway

PREFIX = "Internal error: "


class _Details(Struct, frozen=True, kw_only=True):
    """What go-ent's own agent adds: the kind of the failure."""

    kind: str = ""


def classify(
    error: RpcError, launch: Launch, logins: tuple[AuthMethod, ...] | None, *, remedy: str = ""
) -> WorkerError:
    """The refusal of a session or a prompt, as the kind of failure it is."""
    message = calm.plain(error.message.removeprefix(PREFIX))
    if error.code == AUTH_REQUIRED:
        setting = f"agents.{launch.name}.auth_method"
        how = acp_login.remedy(launch.command, logins or (), setting, launch.auth_method)
        return ProviderRefused(f"{launch.name} wants a login: {how} ({message})")
    kind = _kind(error.data)
    if kind == NothingSaid.kind:
        return NothingSaid(message)
    told = of_kind(kind, message) or told_by_gateway(message)
    return told or by_words(message)(f"{launch.name}: {message}{remedy}")


def _kind(data: Raw | None) -> str:
    try:
        return msgspec.json.decode(data or b"{}", type=_Details).kind
    except msgspec.DecodeError:
        return ""
