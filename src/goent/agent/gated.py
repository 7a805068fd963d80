"""How does the agent ask its model when it is a worker of a daemon's?

All it has is an address of the daemon's gateway, a token that is good there alone, and the name of
the model that it was given. Keys, failover, budgets and the ledger are on the other side.
"""

from pathlib import Path

import msgspec

from goent.agent.held import order_for, passed_to
from goent.agent.models import Chosen, Hear, ModelChoice, Take
from goent.domain.calls import CallBegun, CallMade, Hindrance, Moved, Sizing
from goent.domain.errors import ConfigError, RequestError, WorkerError
from goent.domain.events import UsageReported
from goent.domain.gate import GATE, GateAddress
from goent.domain.health import Condition
from goent.domain.types import Provider, Secret
from goent.llm.talk import ModelRequest
from goent.upstream.ask import Upstream
from goent.upstream.course import Course, Target
from goent.upstream.forward import Connections
from goent.upstream.told import told_by_gateway
from goent.upstream.tries import Patience


def read_gate(told: str) -> GateAddress:
    """What a daemon says of its gate."""
    try:
        return msgspec.json.decode(told, type=GateAddress)
    except msgspec.DecodeError as error:
        raise ConfigError(f"environment: {GATE} is not what a daemon passes on: {error}") from None


class GatedModels:
    """The port `Models`: one model, behind the gate."""

    def __init__(self, gate: GateAddress, connections: Connections) -> None:
        given = gate.provider
        self._provider = Provider(
            name=given.name,
            backend=given.backend,
            model=given.model,
            context_limit=given.context_limit,
            options=given.options,
        )
        target = Target(
            provider=self._provider,
            dialect=given.dialect,
            base_url=gate.url.rstrip("/"),
            key=Secret(gate.token),
        )
        self._course = Course(targets=(target,))
        self._witness = _Witness()
        self._upstream = Upstream(
            connections, self._witness, healths=_AlwaysWell(), patience=Patience(again=0)
        )

    def choices(self) -> tuple[ModelChoice, ...]:
        one = self._provider
        return (ModelChoice(id=one.name, name=one.name, group=one.backend),)

    def find(self, name: str) -> Chosen:
        one = self._provider
        if name not in {one.name, one.model, one.opencode_model}:
            raise RequestError(f"this worker has the model {one.name!r}, not {name!r}")
        return Chosen(provider=one)

    async def choose(self, task: str, cwd: Path) -> Chosen:
        del task, cwd
        return Chosen(provider=self._provider, reason="given by the lead")

    async def stream(
        self, session: str, chosen: Chosen, request: ModelRequest, take: Take, hear: Hear
    ) -> None:
        order = order_for(session, self._course, request)
        self._witness.hearing[session] = hear
        try:
            await self._upstream.stream(order, self._course, passed_to(take))
        except WorkerError as error:
            raise told_by_gateway(str(error)) or error from error
        finally:
            self._witness.hearing.pop(session, None)


class _Witness:
    """The port `CallWitness`. The gateway counts; here it is only known how full the window is."""

    def __init__(self) -> None:
        self.hearing: dict[str, Hear] = {}

    async def begun(self, call: CallBegun, size: Sizing) -> Hindrance | None:
        del call, size
        return None

    async def metered(self, call: CallMade) -> None:
        hear = self.hearing.get(call.worker)
        if hear and call.usage:
            await hear(
                UsageReported(
                    provider=call.backend,
                    model=call.model,
                    usage=call.usage,
                    cost_usd=None,
                    source="gateway",
                )
            )

    async def moved(self, move: Moved) -> None:
        pass

    async def noticed(self, worker: str, text: str) -> None:
        pass


class _AlwaysWell:
    """The port `Healths`: who is well is for the gateway to know."""

    def condition(self, provider: Provider) -> Condition:
        return Condition()

    def under_way(self, provider: Provider) -> int:
        return 0

    async def admits(self, provider: Provider, *, force: bool = False) -> bool:
        return True

    async def served(
        self, provider: Provider, *, began: float, used_up_for_s: float | None = None
    ) -> None:
        pass

    async def failed(self, provider: Provider, error: WorkerError, *, began: float) -> None:
        pass

    async def released(self, provider: Provider) -> None:
        pass

    async def forget(self, provider: Provider) -> bool:
        return False
