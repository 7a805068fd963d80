"""Which of the things that can be asked are about evaluations?"""

from goent.core.operation import Caller, Make, Operation
from goent.domain.evaluations import (
    EvalCompared,
    EvalCompareRequest,
    EvalRunRequest,
    EvalStatus,
    EvalStatusRequest,
    Evaluations,
)


class EvalCalls:
    """They, bound to whoever runs evaluations for the project."""

    def __init__(self, evaluations: Evaluations) -> None:
        self._evaluations = evaluations

    def table(self, make: Make) -> tuple[Operation, ...]:
        return (
            make("eval_run", EvalRunRequest, EvalStatus, self._run),
            make("eval_status", EvalStatusRequest, EvalStatus, self._status),
            make("eval_compare", EvalCompareRequest, EvalCompared, self._compare),
        )

    async def _run(self, request: EvalRunRequest, caller: Caller) -> EvalStatus:
        return await self._evaluations.run(request, caller.cwd)

    async def _status(self, request: EvalStatusRequest, caller: Caller) -> EvalStatus:
        return await self._evaluations.status(request, caller.cwd)

    async def _compare(self, request: EvalCompareRequest, caller: Caller) -> EvalCompared:
        return await self._evaluations.compare(request, caller.cwd)
