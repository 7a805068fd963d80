"""Local model servers: known programs, local addresses, and the models they list."""

from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import Final, Protocol
from urllib.parse import urlsplit

from goent.domain.types import Value

# Hosts with such names are in the user's own network.
_LOCAL_SUFFIXES: Final = (".local", ".lan", ".home.arpa", ".localhost")
_CARRIER_NETWORK: Final = ip_network("100.64.0.0/10")  # used by VPNs between a user's machines


class LocalServer(Value, frozen=True, kw_only=True):
    """A program that serves models without a key. `load` says how to add a model."""

    id: str
    title: str
    port: int
    start: str
    load: str

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


_SERVERS: Final = (
    LocalServer(
        id="ollama",
        title="Ollama",
        port=11434,
        start="start it with `ollama serve`",
        load="get it with `ollama pull {model}`",
    ),
    LocalServer(
        id="lmstudio",
        title="LM Studio",
        port=1234,
        start="start it with `lms server start`",
        load="download it in LM Studio, or with `lms get {model}`",
    ),
    LocalServer(
        id="vllm",
        title="vLLM",
        port=8000,
        start="start it with `vllm serve MODEL`",
        load="start the server with it: `vllm serve {model}`",
    ),
    LocalServer(
        id="llama.cpp",
        title="llama.cpp",
        port=8080,
        start="start it with `llama-server -m MODEL.gguf`",
        load="start the server with it: `llama-server -m MODEL.gguf`",
    ),
)
LOCAL_SERVERS: Final[Mapping[str, LocalServer]] = {server.id: server for server in _SERVERS}
_ALIASES: Final[Mapping[str, str]] = {
    "lm-studio": "lmstudio",
    "lm_studio": "lmstudio",
    "llamacpp": "llama.cpp",
    "llama-cpp": "llama.cpp",
    "llama-server": "llama.cpp",
}
# Ports that only one known program uses.
_BY_PORT: Final = {11434: "ollama", 1234: "lmstudio"}


class ServedModel(Value, frozen=True, kw_only=True):
    """A model as its server lists it; `window` is its context window in tokens, None if unknown."""

    name: str
    window: int | None = None


class ModelListing(Value, frozen=True, kw_only=True):
    """The models that a server lists; `trouble` says why there is no list."""

    base_url: str
    models: tuple[ServedModel, ...] = ()
    trouble: str = ""

    def find(self, model: str) -> ServedModel | None:
        """The model of that name; Ollama's `x` is short for `x:latest`."""
        names = (model, f"{model}:latest")
        return next((served for served in self.models if served.name in names), None)


class ModelServers(Protocol):
    """The local model servers and what they list."""

    async def refresh(self) -> None:
        """Ask the servers again, except those that were asked just now."""
        ...

    def trouble(self, backend: str) -> str:
        """What is wrong with a server; empty if nothing is."""
        ...


class NoModelServers:
    """The port `ModelServers` without any server."""

    async def refresh(self) -> None: ...

    def trouble(self, backend: str) -> str:
        del backend
        return ""


def local_server(backend: str, base_url: str | None = None) -> LocalServer | None:
    """The server program of a backend, by its name, else by a port that only one program uses."""
    found = LOCAL_SERVERS.get(_ALIASES.get(backend, backend))
    if found or base_url is None:
        return found
    try:
        port = urlsplit(base_url).port
    except ValueError:
        return None
    return LOCAL_SERVERS.get(_BY_PORT.get(port or 0, ""))


def is_local_address(base_url: str) -> bool:
    """Whether an address is on this machine or in a private network."""
    try:
        host = (urlsplit(base_url).hostname or "").rstrip(".")
    except ValueError:
        return False
    try:
        address = ip_address(host)
    except ValueError:
        name = host.lower()
        return bool(name) and ("." not in name or name.endswith(_LOCAL_SUFFIXES))
    return address.is_private or address.is_loopback or address in _CARRIER_NETWORK


def is_this_machine(base_url: str) -> bool:
    """Whether an address is on this machine."""
    host = (urlsplit(base_url).hostname or "").rstrip(".")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def not_running_message(backend: str, base_url: str) -> str:
    """One line for an unreachable server: its address, and how to start it."""
    server = local_server(backend, base_url)
    what = server.title if server else f"the model server {backend!r}"
    start = f"{server.start}, or correct its base_url" if server else "start it"
    return f"{what} is not running at {base_url}: {start}"


def missing_model_message(backend: str, base_url: str, model: str) -> str:
    """One line for a model that a server does not have, and how to add it."""
    server = local_server(backend, base_url)
    what = server.title if server else f"the model server {backend!r}"
    load = server.load if server else "load it there, or name one that it lists"
    return f"{what} at {base_url} has no model {model!r}: {load.format(model=model)}"
