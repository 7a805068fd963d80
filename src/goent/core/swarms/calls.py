"""Which of the things that can be asked are about swarms?"""

from goent.core.operation import Caller, Make, Operation
from goent.core.swarms.merging import SwarmMerger
from goent.core.swarms.swarms import Swarms
from goent.domain.swarms import (
    SwarmCancelRequest,
    SwarmList,
    SwarmMerged,
    SwarmMergeRequest,
    SwarmRequest,
    SwarmResult,
    SwarmResultRequest,
    SwarmRetryRequest,
    SwarmSpawnRequest,
    SwarmsRequest,
    SwarmStatus,
    SwarmWaitRequest,
)


class SwarmCalls:
    """They, bound to one project's swarms."""

    def __init__(self, swarms: Swarms, merger: SwarmMerger) -> None:
        self._swarms = swarms
        self._merger = merger

    def table(self, make: Make) -> tuple[Operation, ...]:
        return (
            make("swarm_spawn", SwarmSpawnRequest, SwarmStatus, self._spawn),
            make("swarm_status", SwarmRequest, SwarmStatus, self._status),
            make("swarm_wait", SwarmWaitRequest, SwarmStatus, self._wait),
            make("swarm_result", SwarmResultRequest, SwarmResult, self._result),
            make("swarm_retry", SwarmRetryRequest, SwarmStatus, self._retry),
            make("swarm_cancel", SwarmCancelRequest, SwarmStatus, self._cancel),
            make("swarm_merge", SwarmMergeRequest, SwarmMerged, self._merge),
        )

    def listing(self, make: Make) -> Operation:
        """For people: no model needs to know."""
        return make("swarm_list", SwarmsRequest, SwarmList, self._list)

    async def _spawn(self, request: SwarmSpawnRequest, caller: Caller) -> SwarmStatus:
        swarm = await self._swarms.spawn(request, caller.cwd)
        wait = SwarmWaitRequest(swarm_id=swarm, timeout_s=request.wait_s)
        return await self._swarms.wait(wait, caller.on_progress)

    async def _status(self, request: SwarmRequest, _: Caller) -> SwarmStatus:
        return self._swarms.status(request.swarm_id)

    async def _wait(self, request: SwarmWaitRequest, caller: Caller) -> SwarmStatus:
        return await self._swarms.wait(request, caller.on_progress)

    async def _result(self, request: SwarmResultRequest, _: Caller) -> SwarmResult:
        return await self._swarms.result(request)

    async def _retry(self, request: SwarmRetryRequest, _: Caller) -> SwarmStatus:
        await self._swarms.retry(request)
        return self._swarms.status(request.swarm_id)

    async def _cancel(self, request: SwarmCancelRequest, caller: Caller) -> SwarmStatus:
        await self._swarms.cancel(request, caller.name)
        return self._swarms.status(request.swarm_id)

    async def _merge(self, request: SwarmMergeRequest, _: Caller) -> SwarmMerged:
        return await self._merger.merge(request)

    async def _list(self, _: SwarmsRequest, __: Caller) -> SwarmList:
        return self._swarms.list()
