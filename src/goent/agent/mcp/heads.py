"""What stands in the head of a request to an MCP server, and where does it go?"""

import base64
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit, urlunsplit

from goent import __version__
from goent.agent.mcp.line import ServerTrouble
from goent.agent.ports import ServerSpec

LOOPBACK = ("localhost", "127.0.0.1", "::1")
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Heads:
    """The client's own fields, and what the connection has come to: its version and session."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self.session = ""
        self.version = ""
        self.stateless = False

    def forget(self) -> None:
        self.session = ""
        self.version = ""

    def of(self, method: str, name: str = "") -> dict[str, str]:
        """For one request. The newer era repeats there what it asks for, for whoever routes it."""
        heads = {"user-agent": f"go-ent/{__version__}", **self._given}
        if self.version:
            heads["mcp-protocol-version"] = self.version
        if self.session:
            heads["mcp-session-id"] = self.session
        if self.stateless and method:
            heads["mcp-method"] = method
            if name:
                heads["mcp-name"] = _value(name)
        return heads


def sendable(spec: ServerSpec) -> None:
    """Raises `ServerTrouble` for an address or a field that cannot be used; quotes no secret."""
    parts = _parts(spec.url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise ServerTrouble(f"{place_of(spec.url)!r} is no address: http://… or https://… is one")
    for name, value in spec.headers.items():
        carried(value if NAME.fullmatch(name) else "\n", f"its header {name!r}")


def carried(value: str, what: str) -> str:
    """The value, if a head can carry it; else raises `ServerTrouble`, and does not quote it."""
    if not (value.isascii() and value.isprintable()):
        raise ServerTrouble(f"{what} holds characters that no header can carry")
    return value


def place_of(url: str) -> str:
    """The address without what may be secret in it: user, password, query."""
    parts = _parts(url)
    if parts is None:
        return url.partition("?")[0].rpartition("@")[2]
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def near(url: str) -> bool:
    """On this machine: no proxy between."""
    parts = _parts(url)
    return parts is not None and parts.hostname in LOOPBACK


def _parts(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:  # such as half an IPv6 address
        return None


def _value(name: str) -> str:
    """A name as a header can carry it."""
    if name.isascii() and name.isprintable() and name == name.strip() and "=?" not in name:
        return name
    return f"=?base64?{base64.b64encode(name.encode()).decode()}?="
