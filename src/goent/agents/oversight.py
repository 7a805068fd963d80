"""Holds a foreign agent to its worker's rules: by its mode, its reported calls and the files.

Before a turn, the agent is put into a suitable mode of its own; during the turn, its reported tool
calls are checked, and after it the files. Agents differ in their modes and their names; a few words
are common, and a mode whose name suggests acting without asking is never chosen.
"""

import re
import time
from collections.abc import Callable, Sequence

import anyio
import msgspec

from goent.acp.agent_messages import (
    AcpToolCall,
    AnyUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    ToolCallUpdate,
)
from goent.acp.client_messages import NewSession, OpenedSession, SessionMode, SessionModes
from goent.acp.message_parts import find_option
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
# Words of modes in which an agent acts without asking, whatever else their names say.
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
    """The modes of a session, set by its `option` or, if that is empty, by a request."""

    current: str
    modes: tuple[SessionMode, ...]
    option: str = ""


def fitting_mode(modes: Sequence[SessionMode], care: OversightLevel) -> SessionMode | None:
    """The best mode by its id or name; None if no name fits."""
    safe = [mode for mode in modes if not _acts_without_asking(mode)]
    for wish in _PREFERRED_NAMES[care]:
        found = [mode for mode in safe if any(_has(words, wish) for words in _names(mode))]
        if found:
            return min(
                found, key=lambda mode: len(_split_words(mode.id))
            )  # plan before plan-and-build
    return None


def _acts_without_asking(mode: SessionMode) -> bool:
    return any(_UNSAFE_WORDS.search(" ".join(words)) for words in _names(mode))


def _names(mode: SessionMode) -> tuple[list[str], list[str]]:
    # Some ids are addresses, with the mode behind the last separator.
    return _split_words(re.split(r"[/#:]", mode.id)[-1]), _split_words(mode.name)


def _split_words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _has(words: Sequence[str], wish: tuple[str, ...]) -> bool:
    return any(tuple(words[n : n + len(wish)]) == wish for n in range(len(words)))


def find_mode_offer(opened: NewSession | OpenedSession) -> ModeOffer | None:
    """The modes of a session, from its option or the older list."""
    if option := find_option(opened.config_options, "mode"):
        modes = tuple(SessionMode(id=each.value, name=each.name) for each in option.choices)
        return ModeOffer(current=option.current_value, modes=modes, option=option.id)
    try:
        older = msgspec.json.decode(opened.modes or b"null", type=SessionModes | None)
    except (msgspec.DecodeError, RecursionError):
        return None
    return ModeOffer(current=older.current_mode_id, modes=older.available_modes) if older else None


class ModeKeeper:
    """Keeps one session in a suitable mode; agents may leave it by themselves."""

    def __init__(self, rules: Sequence[PermissionRule], agent: str) -> None:
        self._care: OversightLevel = oversight_level(rules)
        self._agent = agent
        self._offer: ModeOffer | None = None
        self._wanted: SessionMode | None = None
        self._current = ""
        self._last_notice = ""

    def begin(self, opened: NewSession | OpenedSession) -> None:
        """Start with a session that was just opened."""
        if offer := find_mode_offer(opened) or self._offer:
            self._offer, self._current = offer, offer.current
            self._wanted = fitting_mode(offer.modes, self._care)

    def record_mode(self, current: str) -> None:
        """Note the mode that the agent reports."""
        self._current = current

    async def enforce(self, connection: AgentConnection, session: str) -> str:
        """Set the suitable mode; returns a notice for the owner, unless it would repeat the last one."""
        notice = await self._enforce(connection, session)
        if notice == self._last_notice:
            return ""
        self._last_notice = notice
        return notice

    async def _enforce(self, connection: AgentConnection, session: str) -> str:
        wanted, offer = self._wanted, self._offer
        if self._care == "free":
            return ""
        if wanted is None or offer is None:
            names = ", ".join(mode.id for mode in offer.modes) if offer else "none"
            return (
                f"{self._agent} has no mode of its own that fits these permissions (it has: {names}): rules "
                "apply only to what it asks"
            )
        before, self._current = self._current, wanted.id
        if before != wanted.id:
            try:
                now = await connection.set_mode(session, wanted.id, option=offer.option)
            except (RpcError, ProtocolError) as error:
                self._current = before
                return f"{self._agent} did not accept its mode {wanted.id!r}: {error}"
            # The older request returns nothing; the agent may have reported its mode meanwhile.
            self._current = self._current if now is None else now
        if self._current != wanted.id:
            return (
                f"{self._agent} was asked to use its mode {wanted.id!r} and is in {self._current!r}"
            )
        return f"{self._agent} works in its mode {wanted.id!r}"


MAX_FILES_NAMED = 5
MAX_DETAIL = 300  # characters of what ran without permission

IsShared = Callable[[str, float], bool]


class AgentOversight:
    """Watches one worker. `shared` tells whether others worked in its directory since a time."""

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
        """Before a turn: set the suitable mode, and list the files."""
        if notice := await self._mode.enforce(process.connection, session):
            await emit(Noticed(text=notice))
        self._began = time.time()
        self._files = await self._listing()

    def record_update(
        self, update: AnyUpdate, turn: AgentTurn | None, granted: Callable[[AccessRequest], bool]
    ) -> None:
        """During a turn and before it: note the agent's mode and calls."""
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
        """After a turn: find changed files that it was not allowed to change."""
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
        """The changed files that it was not allowed to change."""
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
