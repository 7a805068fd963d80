"""How does go-ent's own agent reach its model when it is a daemon's worker?

One variable of its environment says it, as JSON; the agent takes it out before it starts anything.
"""

from goent.domain.types import Dialect, Value

GATE = "GOENT_GATE"


class GatedModel(Value, frozen=True, kw_only=True):
    """The model that the worker was given."""

    name: str
    backend: str
    model: str
    dialect: Dialect
    context_limit: int | None = None
    options: bytes = b""


class GateAddress(Value, frozen=True, kw_only=True):
    """The value of `GOENT_GATE`. `url` stands in for the backend's own address.

    `writable` is of the project's settings, which a worktree may not hold. `refused` are the tools
    that the worker's rules refuse whatever they are given: the model is not offered them. `sandbox` is
    how its commands are confined; empty if they are not.
    """

    url: str
    token: str
    provider: GatedModel
    writable: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    sandbox: str = ""
