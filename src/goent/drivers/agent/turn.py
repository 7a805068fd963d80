"""What is known of an agent's turn, and what does its end mean?"""

from pathlib import Path

from goent.domain.errors import ModelRefused, NothingSaid, PermissionDenied, WorkerError
from goent.domain.ports import StopReason
from goent.drivers.acp_turn import AcpTurn
from goent.drivers.agent.translate import AgentTranslator
from goent.drivers.questions import Matter


class AgentTurn(AcpTurn):
    """With all that was told of its tool calls, and the last thing that was refused."""

    def __init__(self, cwd: Path) -> None:
        self.calls = AgentTranslator(cwd)
        super().__init__(self.calls)
        self.rejected: Matter | None = None

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
