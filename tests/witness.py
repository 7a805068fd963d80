"""Somebody who is told what becomes of model calls, and writes it down."""

from dataclasses import dataclass, field

from goent.domain.money import CallDelay, CallSizer, FinishedCall, ProviderMove, StartedCall


@dataclass
class Witness:
    """The port `CallObserver`."""

    begins: list[StartedCall] = field(default_factory=list[StartedCall])
    calls: list[FinishedCall] = field(default_factory=list[FinishedCall])
    moves: list[ProviderMove] = field(default_factory=list[ProviderMove])
    notices: list[str] = field(default_factory=list[str])

    async def call_started(self, call: StartedCall, size: CallSizer) -> CallDelay | None:
        self.begins.append(call)
        return None

    async def call_finished(self, call: FinishedCall) -> None:
        self.calls.append(call)

    async def provider_changed(self, move: ProviderMove) -> None:
        self.moves.append(move)

    async def notice(self, worker: str, text: str) -> None:
        self.notices.append(f"{worker}: {text}")
