"""What holds somebody else's agent to its worker's rules, beside the questions that it asks?

Before a turn its own mode, during the turn what it tells of its calls, and after it the files.
"""

import time
from collections.abc import Callable, Sequence

import anyio

from goent.acp.options import find_option
from goent.acp.updates import (
    AnyUpdate,
    ConfigOptionUpdate,
    CurrentModeUpdate,
    ToolCall,
    ToolCallUpdate,
)
from goent.domain.errors import PermissionBypassed
from goent.domain.events import Noticed
from goent.domain.ports import Emit, WorkerSpec
from goent.drivers.agent.asking import matters
from goent.drivers.agent.models import Opened
from goent.drivers.agent.modes import HeldMode
from goent.drivers.agent.process import AgentProcess
from goent.drivers.agent.turn import AgentTurn
from goent.drivers.agent.unasked import Listing, Permitted, changed, is_act, listing, unasked
from goent.drivers.ground import Ground
from goent.drivers.questions import Matter
from goent.drivers.rules import ANYTHING, judge, oversight_level

MOST_NAMES = 5

Shared = Callable[[str, float], bool]


class Watch:
    """Over one worker. `shared` tells whether others have worked in its directory since a time."""

    def __init__(self, spec: WorkerSpec, ground: Ground, shared: Shared) -> None:
        self._spec = spec
        self._ground = ground
        self._shared = shared
        self._agent = spec.provider.backend
        self._looks_only = oversight_level(spec.rules) == "readonly"
        self._edits_are_asked = judge(spec.rules, "edit", (ANYTHING,)) != "allow"
        # A command may change any file, also in a later turn.
        self._ran = judge(spec.rules, "bash", (ANYTHING,)) == "allow"
        self._mode = HeldMode(spec.rules, self._agent)
        self._files: Listing | None = None
        self._began = 0.0

    def opened(self, session: Opened) -> None:
        self._mode.begin(session)

    async def begin(self, process: AgentProcess, session: str, emit: Emit) -> None:
        """Before a turn: the mode that fits, and how the files are."""
        if told := await self._mode.hold(process.connection, session):
            await emit(Noticed(text=told))
        self._began = time.time()
        self._files = await self._listing()

    def heard(
        self, update: AnyUpdate, turn: AgentTurn | None, granted: Callable[[Matter], bool]
    ) -> None:
        """During a turn, and before it: which mode it is in, and what it has done."""
        match update:
            case CurrentModeUpdate(current_mode_id=mode):
                self._mode.heard(mode)
            case ConfigOptionUpdate(config_options=options):
                if option := find_option(options, "mode"):
                    self._mode.heard(option.current_value)
            case ToolCall() | ToolCallUpdate() if turn and update.status == "completed":
                call = turn.calls.whole(update)
                matter = unasked(call, self._ground, self._spec.rules, turn.permitted)
                if matter and not granted(matter):
                    turn.catch(self._agent, matter.permission, matter.detail)
                elif is_act(call):
                    turn.permitted.add(call, matters(call, self._ground))
            case _:
                pass

    async def end(self, permitted: Permitted, emit: Emit) -> PermissionBypassed | None:
        """After a turn: what has become of the files that it must not change, or not unasked."""
        names = await self._unexplained(permitted)
        if not names:
            return None
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        told = ", ".join(map(repr, names[:MOST_NAMES])) + more
        others = ["others who work there"] if self._shared(self._spec.id, self._began) else []
        others += ["a command that was allowed"] if self._ran and not self._looks_only else []
        if others:
            who = " or by ".join([self._agent, *others])
            await emit(Noticed(text=f"files changed during the turn, by {who}: {told}"))
            return None
        may = "change no files" if self._looks_only else "change files only after asking"
        return PermissionBypassed(
            f"{self._agent} may {may}, and during its turn these changed: {told}. It did not ask; "
            "what it did is in place"
        )

    async def _unexplained(self, permitted: Permitted) -> Sequence[str]:
        """The files that changed and that it was not allowed to change."""
        before, self._files = self._files, None
        after = await self._listing() if before is not None else None
        if before is None or after is None:
            return ()
        names = changed(before, after)
        if self._looks_only:
            return names
        self._ran = self._ran or permitted.commands
        return [name for name in names if not permitted.edits(self._shown(name))]

    def _shown(self, name: str) -> str:
        place = self._ground.real(name)
        return self._ground.shown(place) if place else name

    async def _listing(self) -> Listing | None:
        if not self._edits_are_asked:
            return None
        return await anyio.to_thread.run_sync(listing, self._spec.cwd)
