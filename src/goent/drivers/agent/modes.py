"""Which of an agent's own modes fits what its worker may do?

Agents differ in their modes and in the names of them. What is known is the few words that they have
in common; a mode that speaks of doing things unasked is never chosen.
"""

import re
from collections.abc import Sequence

import msgspec
from msgspec import UNSET, Raw, UnsetType

from goent.acp.messages import NewSession, OpenedSession, SessionMode, SessionModes
from goent.acp.options import SelectOption, find_option
from goent.domain.errors import ProtocolError
from goent.domain.settings import PermissionRule
from goent.domain.types import Value
from goent.drivers.acp_connection import AgentConnection
from goent.drivers.rules import OversightLevel, oversight_level
from goent.rpc import RpcError

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
# Words of modes in which an agent does things unasked, whatever else their names say.
_UNASKED = re.compile(
    r"\b(auto\w*|yolo|bypass\w*|danger\w*|unsafe|unrestricted|accept\w*|full\w*|skip|never|no|not|dont|don"
    r"|without|allow\w*|all|any|everything|trust\w*|write|force|always(?! ask\b))\b"
)
_LOOKING = (("read", "only"), ("readonly",), ("plan",), ("planning",), ("planner",))
_ASKING = (
    *(("default",), ("approval",), ("approvals",), ("approve",), ("manual",), ("confirm",)),
    *(("normal",), ("ask",)),
)
_WISHES: dict[OversightLevel, tuple[tuple[str, ...], ...]] = {
    "readonly": (*_LOOKING, ("ask",), *_ASKING),
    "asking": (*_ASKING, ("read", "only"), ("readonly",)),
    "free": (),
}


class Offer(Value, frozen=True, kw_only=True):
    """The modes of a session. They are set by its `option`; where that is empty, by a request."""

    current: str
    modes: tuple[SessionMode, ...]
    option: str = ""


def fitting_mode(modes: Sequence[SessionMode], care: OversightLevel) -> SessionMode | None:
    """The best of them by its id or its name; None if no name says that it fits."""
    safe = [mode for mode in modes if not _acts_unasked(mode)]
    for wish in _WISHES[care]:
        found = [mode for mode in safe if any(_has(words, wish) for words in _names(mode))]
        if found:
            return min(found, key=lambda mode: len(_words(mode.id)))  # plan before plan-and-build
    return None


def _acts_unasked(mode: SessionMode) -> bool:
    return any(_UNASKED.search(" ".join(words)) for words in _names(mode))


def _names(mode: SessionMode) -> tuple[list[str], list[str]]:
    # Some ids are addresses: the mode is what stands behind the last separator.
    return _words(re.split(r"[/#:]", mode.id)[-1]), _words(mode.name)


def _words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _has(words: Sequence[str], wish: tuple[str, ...]) -> bool:
    return any(tuple(words[n : n + len(wish)]) == wish for n in range(len(words)))


def offer_of(opened: NewSession | OpenedSession) -> Offer | None:
    """What a session offers, by the option for it or by the older list."""
    if option := find_option(opened.config_options, "mode"):
        return _of_option(option)
    modes = _listed(opened.modes)
    return Offer(current=modes.current_mode_id, modes=modes.available_modes) if modes else None


def _of_option(option: SelectOption) -> Offer:
    modes = tuple(SessionMode(id=each.value, name=each.name) for each in option.choices)
    return Offer(current=option.current_value, modes=modes, option=option.id)


def _listed(raw: Raw | UnsetType) -> SessionModes | None:
    if raw is UNSET:
        return None
    try:
        return msgspec.json.decode(raw, type=SessionModes | None)
    except (msgspec.DecodeError, RecursionError):
        return None


class HeldMode:
    """The mode that one session is to have; agents may leave it by themselves."""

    def __init__(self, rules: Sequence[PermissionRule], agent: str) -> None:
        self._care: OversightLevel = oversight_level(rules)
        self._agent = agent
        self._offer: Offer | None = None
        self._wanted: SessionMode | None = None
        self._current = ""
        self._told = ""

    def begin(self, opened: NewSession | OpenedSession) -> None:
        """A session was opened, in whichever process."""
        if offer := offer_of(opened) or self._offer:
            self._offer, self._current = offer, offer.current
            self._wanted = fitting_mode(offer.modes, self._care)

    def heard(self, current: str) -> None:
        """The agent says that it is in another mode now."""
        self._current = current

    async def hold(self, connection: AgentConnection, session: str) -> str:
        """Have it in the mode that fits; what its owner should know, unless that was told before."""
        told = await self._held(connection, session)
        if told == self._told:
            return ""
        self._told = told
        return told

    async def _held(self, connection: AgentConnection, session: str) -> str:
        wanted, offer = self._wanted, self._offer
        if self._care == "free":
            return ""
        if wanted is None or offer is None:
            names = ", ".join(mode.id for mode in offer.modes) if offer else "none"
            return (
                f"{self._agent} has no mode of its own that fits these permissions (it has: {names}): rules hold "
                "for what it asks"
            )
        before, self._current = self._current, wanted.id
        if before != wanted.id:
            try:
                now = await connection.set_mode(session, wanted.id, option=offer.option)
            except (RpcError, ProtocolError) as error:
                self._current = before
                return f"{self._agent} did not take its mode {wanted.id!r}: {error}"
            # By the older request nothing comes back: what it tells of its mode meanwhile is heard.
            self._current = self._current if now is None else now
        if self._current != wanted.id:
            return (
                f"{self._agent} was told to use its mode {wanted.id!r} and is in {self._current!r}"
            )
        return f"{self._agent} works in its mode {wanted.id!r}"
