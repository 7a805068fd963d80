"""How are sessions and warm directories had from an `opencode acp`?"""

from collections.abc import Sequence
from pathlib import Path

from goent.domain.ports import Gate, WorkerSpec
from goent.drivers.opencode.conversation import Conversation
from goent.drivers.opencode.process import OpenCodeProcess
from goent.drivers.opencode.session import OpenCodeSession
from goent.drivers.opencode.warmup import boot


class AcpHost(OpenCodeProcess):
    """The process, as the pool has it."""

    async def open(
        self,
        spec: WorkerSpec,
        *,
        direct: bool,
        instructions: Sequence[Path],
        earlier: Conversation | None,
    ) -> Conversation:
        return await OpenCodeSession.start(
            self, spec, direct=direct, instructions=instructions, earlier=earlier
        )

    async def boot(self, gate: Gate, cwd: Path) -> None:
        await boot(self, gate, cwd)
