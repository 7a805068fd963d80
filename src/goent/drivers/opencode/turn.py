"""What does OpenCode tell of a turn beside its ACP updates?"""

from pathlib import Path

import anyio

from goent.domain.errors import PermissionBypassed
from goent.drivers.acp_turn import AcpTurn
from goent.drivers.opencode.shapes import SessionFault
from goent.drivers.opencode.translate import OpenCodeTranslator
from goent.drivers.questions import Matter


class Turn(AcpTurn):
    """With the refusal that ended it, and the error as the event stream has it.

    `caught` is set when something ran that nobody had allowed, which `bypass` tells, and at its end.
    """

    def __init__(self, cwd: Path) -> None:
        super().__init__(OpenCodeTranslator(cwd))
        self.rejected: Matter | None = None
        self.fault: SessionFault | None = None
        self.bypass: PermissionBypassed | None = None
        self.caught = anyio.Event()
        self._faulted = anyio.Event()

    def catch(self, bypass: PermissionBypassed) -> None:
        """The first such call ends the turn."""
        self.bypass = self.bypass or bypass
        self.caught.set()

    def close(self) -> None:
        super().close()
        self.caught.set()

    def note_fault(self, fault: SessionFault) -> None:
        self.fault = fault
        self._faulted.set()

    async def last_fault(self, patience: float) -> SessionFault | None:
        """The error as the event stream tells it, which may come after the refusal itself."""
        with anyio.move_on_after(patience):
            await self._faulted.wait()
        return self.fault
