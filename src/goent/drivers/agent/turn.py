"""What is known of an agent's turn, and what does its end mean?"""

from pathlib import Path

import anyio

from goent.domain.errors import (
    ModelRefused,
    NothingSaid,
    PermissionBypassed,
    PermissionDenied,
    WorkerError,
)
from goent.domain.ports import StopReason
from goent.drivers.acp_turn import AcpTurn
from goent.drivers.agent.translate import AgentTranslator
from goent.drivers.agent.unasked import Permitted
from goent.drivers.questions import Matter

DETAIL = 300  # characters of what it did


class AgentTurn(AcpTurn):
    """With all that was told of its tool calls, what was allowed, and the last thing that was refused.

    `caught` is set when it has done what was not allowed, which `bypass` tells, and at its end.
    """

    def __init__(self, cwd: Path) -> None:
        self.calls = AgentTranslator(cwd)
        super().__init__(self.calls)
        self.permitted = Permitted()
        self.rejected: Matter | None = None
        self.unsaid = ""  # what came with the last no
        self.bypass: PermissionBypassed | None = None
        self.caught = anyio.Event()

    def catch(self, agent: str, tool: str, detail: str) -> None:
        """The first such deed ends the turn."""
        if self.bypass is None:
            self.bypass = PermissionBypassed(
                f"{agent} did what its permissions do not allow, and did not ask: {tool} {detail[:DETAIL]!r}. "
                "The turn was ended; what it did so far is in place"
            )
            self.caught.set()

    def close(self) -> None:
        super().close()
        self.caught.set()

    def verdict(self, agent: str) -> StopReason:
        """Of a turn that the agent ended by itself. Raises a `WorkerError` if it is no good end."""
        match self.stop_reason:
            case "cancelled" if self.rejected:
                what, permission = ", ".join(self.rejected.patterns), self.rejected.permission
                raise PermissionDenied(
                    f"permission {permission!r} was refused for {what!r}: the turn ended"
                )
            case "cancelled":
                return "cancelled"
            case "refusal":
                raise ModelRefused(f"the model of {agent} refused to answer")
            case "max_tokens" | "max_turn_requests":
                raise WorkerError(
                    f"{agent} ended its turn early ({self.stop_reason}): what it did so far is in "
                    "place; prompt it to go on"
                )
            case _ if not self.spoke:
                raise NothingSaid(f"{agent} ended its turn without a word and without a tool call")
            case _:
                return "end"
