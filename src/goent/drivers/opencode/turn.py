"""What does OpenCode tell of a turn beside its ACP updates?"""

from pathlib import Path

import anyio

from goent.drivers.acp_turn import AcpTurn
from goent.drivers.opencode.shapes import SessionFault
from goent.drivers.opencode.translate import OpenCodeTranslator
from goent.drivers.questions import Matter


class Turn(AcpTurn):
    """With the refusal that ended it, and the error as the event stream has it."""

    def __init__(self, cwd: Path) -> None:
        super().__init__(OpenCodeTranslator(cwd))
        self.rejected: Matter | None = None
        self.fault: SessionFault | None = None
        self._faulted = anyio.Event()

    def note_fault(self, fault: SessionFault) -> None:
        self.fault = fault
        self._faulted.set()

    async def last_fault(self, patience: float) -> SessionFault | None:
        """The error as the event stream tells it, which may come after the refusal itself."""
        with anyio.move_on_after(patience):
            await self._faulted.wait()
        return self.fault
