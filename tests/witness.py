"""Somebody who is told what becomes of model calls, and writes it down."""

from dataclasses import dataclass, field

from goent.domain.calls import CallBegun, CallMade, Hindrance, Moved, Sizing


@dataclass
class Witness:
    """The port `CallWitness`."""

    begins: list[CallBegun] = field(default_factory=list[CallBegun])
    calls: list[CallMade] = field(default_factory=list[CallMade])
    moves: list[Moved] = field(default_factory=list[Moved])
    notices: list[str] = field(default_factory=list[str])

    async def begun(self, call: CallBegun, size: Sizing) -> Hindrance | None:
        self.begins.append(call)
        return None

    async def metered(self, call: CallMade) -> None:
        self.calls.append(call)

    async def moved(self, move: Moved) -> None:
        self.moves.append(move)

    async def noticed(self, worker: str, text: str) -> None:
        self.notices.append(f"{worker}: {text}")
