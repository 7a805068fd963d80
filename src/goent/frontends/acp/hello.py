"""Who are we, what can a client ask of us, and how does it give us a key?

All of this is known before anything is opened, so that whoever asks gets an answer at once, and
without a key: an editor's list of agents asks no more.
"""

from msgspec import Raw

from goent.acp.base import Message
from goent.acp.messages import (
    PROTOCOL_VERSION,
    AgentCapabilities,
    AuthMethod,
    ClientCapabilities,
    Implementation,
    InitializeResult,
    PromptCapabilities,
    SessionCapabilities,
    Supported,
)

LOGIN = "--login"  # after `go-ent acp` or `go-ent`: both ways are in use to start it

_KEYS = AuthMethod(
    id="go-ent-keys",
    name="Keys of go-ent",
    type="agent",
    description=(
        "go-ent uses the providers' keys in your environment and in ~/.config/go-ent: "
        "run `go-ent init` in a terminal to set one up, `go-ent doctor` to see what is missing"
    ),
)
_SETUP = AuthMethod(
    id="go-ent-setup",
    name="Set up go-ent",
    type="terminal",
    description="Looks for keys, and says in a terminal what is missing",
    args=(LOGIN,),
)

CAPABILITIES = AgentCapabilities(
    load_session=True,
    prompt_capabilities=PromptCapabilities(image=True, embedded_context=True),
    mcp_capabilities=Raw(b'{"http":true,"sse":false}'),
    session_capabilities=SessionCapabilities(
        close=Supported(),
        delete=Supported(),
        list=Supported(),
        resume=Supported(),
        additional_directories=Supported(),
    ),
)


class Hello(Message, frozen=True, kw_only=True):
    """The first words of a client; whatever it takes for a version is one."""

    protocol_version: Raw = Raw()
    client_capabilities: ClientCapabilities | None = None


def known_method(method_id: str) -> bool:
    return method_id in (_KEYS.id, _SETUP.id)


def who(version: str) -> Implementation:
    return Implementation(name="go-ent", title="go-ent", version=version)


def welcome(client: ClientCapabilities, version: str) -> InitializeResult:
    """A method that needs a terminal is offered only to those who have one."""
    terminal = client.auth is not None and client.auth.terminal
    return InitializeResult(
        protocol_version=PROTOCOL_VERSION,
        agent_capabilities=CAPABILITIES,
        agent_info=who(version),
        auth_methods=(_KEYS, _SETUP) if terminal else (_KEYS,),
    )
