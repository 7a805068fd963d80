"""Holds a foreign agent to its worker's rules: by its mode, its reported calls and the files.

Agents differ in their modes and in the names of them. What is known is the few words that they have
in common; a mode that speaks of doing things unasked is never chosen.

Before a turn its own mode, during the turn what it tells of its calls, and after it the files.
"""

import re
import time
from collections.abc import Callable, Sequence

import anyio
import msgspec
from msgspec import UNSET, Raw, UnsetType

from goent.acp.agent_messages import (
    AcpToolCall,
    AnyUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    ToolCallUpdate,
)
from goent.acp.client_messages import NewSession, OpenedSession, SessionMode, SessionModes
from goent.acp.message_parts import SelectOption, find_option
from goent.agents.acp_turn import AgentTurn
from goent.agents.agent_connection import AgentConnection, list_names
from goent.agents.agent_process import AgentProcess, SessionReply
from goent.agents.call_permissions import (
    FileListing,
    TurnPermissions,
    access_for_call,
    changed_names,
    find_unapproved,
    is_action,
    list_files,
)
from goent.agents.worker_paths import WorkerPaths
from goent.domain.errors import PermissionBypassed, ProtocolError
from goent.domain.events import Noticed
from goent.domain.ports import Emit, WorkerSpec
from goent.domain.settings import PermissionRule
from goent.domain.types import Value
from goent.permissions.access_rules import (
    ANY_COMMAND,
    AccessRequest,
    OversightLevel,
    oversight_level,
    strictest_action,
)
from goent.rpc.json_rpc import RpcError

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
# Words of modes in which an agent does things unasked, whatever else their names say.
_UNSAFE_WORDS = re.compile(
    r"\b(auto\w*|yolo|bypass\w*|danger\w*|unsafe|unrestricted|accept\w*|full\w*|skip|never|no|not|dont|don"
    r"|without|allow\w*|all|any|everything|trust\w*|write|force|always(?! ask\b))\b"
)
_READONLY_NAMES = (("read", "only"), ("readonly",), ("plan",), ("planning",), ("planner",))
_ASKING_NAMES = (
    *(("default",), ("approval",), ("approvals",), ("approve",), ("manual",), ("confirm",)),
    *(("normal",), ("ask",)),
)
_PREFERRED_NAMES: dict[OversightLevel, tuple[tuple[str, ...], ...]] = {
    "readonly": (*_READONLY_NAMES, ("ask",), *_ASKING_NAMES),
    "asking": (*_ASKING_NAMES, ("read", "only"), ("readonly",)),
    "free": (),
}


class ModeOffer(Value, frozen=True, kw_only=True):
    """The modes of a session. They are set by its `option`; where that is empty, by a request."""

    current: str
    modes: tuple[SessionMode, ...]
    option: str = ""


def fitting_mode(modes: Sequence[SessionMode], care: OversightLevel) -> SessionMode | None:
    """The best of them by its id or its name; None if no name says that it fits."""
    safe = [mode for mode in modes if not _acts_unasked(mode)]
    for wish in _PREFERRED_NAMES[care]:
        found = [mode for mode in safe if any(_has(words, wish) for words in _names(mode))]
        if found:
            return min(
                found, key=lambda mode: len(_split_words(mode.id))
            )  # plan before plan-and-build
    return None


def _acts_unasked(mode: SessionMode) -> bool:
    return any(_UNSAFE_WORDS.search(" ".join(words)) for words in _names(mode))


def _names(mode: SessionMode) -> tuple[list[str], list[str]]:
    # Some ids are addresses: the mode is what stands behind the last separator.
    return _split_words(re.split(r"[/#:]", mode.id)[-1]), _split_words(mode.name)


def _split_words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _has(words: Sequence[str], wish: tuple[str, ...]) -> bool:
    return any(tuple(words[n : n + len(wish)]) == wish for n in range(len(words)))


def find_mode_offer(opened: NewSession | OpenedSession) -> ModeOffer | None:
    """What a session offers, by the option for it or by the older list."""
    if option := find_option(opened.config_options, "mode"):
        return _offer_from_option(option)
    modes = _decode_modes(opened.modes)
    return ModeOffer(current=modes.current_mode_id, modes=modes.available_modes) if modes else None


def _offer_from_option(option: SelectOption) -> ModeOffer:
    modes = tuple(SessionMode(id=each.value, name=each.name) for each in option.choices)
    return ModeOffer(current=option.current_value, modes=modes, option=option.id)


def _decode_modes(raw: Raw | UnsetType) -> SessionModes | None:
    if raw is UNSET:
        return None
    try:
        return msgspec.json.decode(raw, type=SessionModes | None)
    except (msgspec.DecodeError, RecursionError):
        return None


class ModeKeeper:
    """The mode that one session is to have; agents may leave it by themselves."""

    def __init__(self, rules: Sequence[PermissionRule], agent: str) -> None:
        self._care: OversightLevel = oversight_level(rules)
        self._agent = agent
        self._offer: ModeOffer | None = None
        self._wanted: SessionMode | None = None
        self._current = ""
        self._last_notice = ""

    def begin(self, opened: NewSession | OpenedSession) -> None:
        """A session was opened, in whichever process."""
        if offer := find_mode_offer(opened) or self._offer:
            self._offer, self._current = offer, offer.current
            self._wanted = fitting_mode(offer.modes, self._care)

    def record_mode(self, current: str) -> None:
        """The agent says that it is in another mode now."""
        self._current = current

    async def enforce(self, connection: AgentConnection, session: str) -> str:
        """Have it in the mode that fits; what its owner should know, unless that was told before."""
        told = await self._enforce(connection, session)
        if told == self._last_notice:
            return ""
        self._last_notice = told
        return told

    async def _enforce(self, connection: AgentConnection, session: str) -> str:
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


MAX_FILES_NAMED = 5
MAX_DETAIL = 300  # characters of what ran without permission

IsShared = Callable[[str, float], bool]


class AgentOversight:
    """Over one worker. `shared` tells whether others have worked in its directory since a time."""

    def __init__(self, spec: WorkerSpec, workdir: WorkerPaths, shared: IsShared) -> None:
        self._spec = spec
        self._workdir = workdir
        self._shared = shared
        self._agent = spec.provider.backend
        self._is_readonly = oversight_level(spec.rules) == "readonly"
        self._edits_are_asked = strictest_action(spec.rules, "edit", (ANY_COMMAND,)) != "allow"
        # A command may change any file, also in a later turn.
        self._command_allowed = strictest_action(spec.rules, "bash", (ANY_COMMAND,)) == "allow"
        self._mode = ModeKeeper(spec.rules, self._agent)
        self._files: FileListing | None = None
        self._began = 0.0

    def opened(self, session: SessionReply) -> None:
        self._mode.begin(session)

    async def begin(self, process: AgentProcess, session: str, emit: Emit) -> None:
        """Before a turn: the mode that fits, and how the files are."""
        if told := await self._mode.enforce(process.connection, session):
            await emit(Noticed(text=told))
        self._began = time.time()
        self._files = await self._listing()

    def record_update(
        self, update: AnyUpdate, turn: AgentTurn | None, granted: Callable[[AccessRequest], bool]
    ) -> None:
        """During a turn, and before it: which mode it is in, and what it has done."""
        match update:
            case CurrentModeUpdate(current_mode_id=mode):
                self._mode.record_mode(mode)
            case ConfigOptionUpdate(config_options=options):
                if option := find_option(options, "mode"):
                    self._mode.record_mode(option.current_value)
            case AcpToolCall() | ToolCallUpdate() if turn and update.status == "completed":
                call = turn.calls.merge(update)
                access = find_unapproved(call, self._workdir, self._spec.rules, turn.permitted)
                if access and not granted(access):
                    turn.record_bypass(self._bypass_error(access))
                elif is_action(call):
                    turn.permitted.add(call, access_for_call(call, self._workdir))
            case _:
                pass

    def _bypass_error(self, access: AccessRequest) -> PermissionBypassed:
        return PermissionBypassed(
            f"{self._agent} did what its permissions do not allow, and did not ask: "
            f"{access.permission} {access.detail[:MAX_DETAIL]!r}. "
            "The turn was ended; what it did so far is in place"
        )

    async def end(self, permitted: TurnPermissions, emit: Emit) -> PermissionBypassed | None:
        """After a turn: what has become of the files that it must not change, or not unasked."""
        names = await self._unexplained(permitted)
        if not names:
            return None
        changed = list_names([*map(repr, names)], MAX_FILES_NAMED)
        others = ["others who work there"] if self._shared(self._spec.id, self._began) else []
        others += (
            ["a command that was allowed"]
            if self._command_allowed and not self._is_readonly
            else []
        )
        if others:
            who = " or by ".join([self._agent, *others])
            await emit(Noticed(text=f"files changed during the turn, by {who}: {changed}"))
            return None
        may = "change no files" if self._is_readonly else "change files only after asking"
        return PermissionBypassed(
            f"{self._agent} may {may}, and during its turn these changed: {changed}. It did not ask; "
            "what it did is in place"
        )

    async def _unexplained(self, permitted: TurnPermissions) -> Sequence[str]:
        """The files that changed and that it was not allowed to change."""
        before, self._files = self._files, None
        after = await self._listing() if before is not None else None
        if before is None or after is None:
            return ()
        names = changed_names(before, after)
        if self._is_readonly:
            return names
        self._command_allowed = self._command_allowed or permitted.commands
        return [name for name in names if not permitted.allows_edit(self._shown(name))]

    def _shown(self, name: str) -> str:
        place = self._workdir.resolve(name)
        return self._workdir.from_checkout(place) if place else name

    async def _listing(self) -> FileListing | None:
        if not self._edits_are_asked:
            return None
        return await anyio.to_thread.run_sync(list_files, self._spec.cwd)
