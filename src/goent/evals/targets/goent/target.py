"""How are go-ent's own workers given cases?"""

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio

from goent.domain.errors import TurnTimeout
from goent.domain.replies import Prompted
from goent.evals.ports import Attempt, Target, TargetError, Witness
from goent.evals.suites import TargetSpec
from goent.evals.targets.goent.daemon import Daemon, DaemonGone, DaemonRefused, OpenDaemon
from goent.evals.targets.goent.racing import (
    Beside,
    as_at_home,
    bring_home,
    copies,
    raced,
    spent_by,
    together,
)
from goent.evals.targets.goent.settings import GoentSettings, prompt, task
from goent.evals.targets.goent.working import Working, failure_of
from goent.evals.targets.settings import settings_of
from goent.evals.traces import Trace

EARLIER_S = 3.0  # a worker ends its turn by itself before we cut it off,
LONG_S = 10.0  # if it has as long as this


class GoentTarget:
    """The port `Target`, by a worker for each attempt, or several that race. Each is closed in the end."""

    def __init__(self, spec: TargetSpec, meet: OpenDaemon, *, scratch: Path | None = None) -> None:
        """Whoever races does so in a folder in `scratch`."""
        self._told = settings_of(spec, GoentSettings)
        self._meet = meet
        self._scratch = scratch

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
        with _bounded(self._told, attempt) as limit:
            async with self._meet() as daemon:
                if len(self._told.candidates) > 1:
                    return await self._race(daemon, attempt, witness, limit)
                return await self._alone(daemon, attempt, witness, limit)

    @asynccontextmanager
    async def conversing(self, attempt: Attempt) -> AsyncGenerator[Target]:
        """One worker for all turns. Only where it is one: see `evals/running/plan.py`."""
        try:
            async with self._meet() as daemon:
                talking = _Talking(self._told, daemon, self._meet)
                try:
                    yield talking
                finally:
                    await talking.close()
        except (DaemonRefused, DaemonGone) as trouble:
            raise failure_of(trouble) from trouble

    async def _alone(
        self, daemon: Daemon, attempt: Attempt, witness: Witness, limit: float
    ) -> Trace:
        working = Working(daemon, self._meet, self._told.permission_policy, witness)
        (candidate,) = self._told.candidates
        await working.work(
            task(attempt, candidate, self._told, cwd=str(attempt.cwd), limit_s=_earlier(limit))
        )
        if working.failure:
            raise working.failure
        return working.telling.trace()

    async def _race(
        self, daemon: Daemon, attempt: Attempt, witness: Witness, limit: float
    ) -> Trace:
        candidates = self._told.candidates
        async with copies(attempt.cwd, len(candidates), self._scratch) as folders:
            beside: list[Beside] = []
            racers = [
                Working(daemon, self._meet, self._told.permission_policy, Beside(witness, beside))
                for _ in candidates
            ]
            requests = [
                task(attempt, candidate, self._told, cwd=str(folder), limit_s=_earlier(limit))
                for candidate, folder in zip(candidates, folders, strict=True)
            ]
            try:
                winner = await raced(racers, requests)
            finally:
                spent = spent_by(racers)
                if spent.usage:
                    witness.spent(spent.usage, spent.cost_usd)
            won = folders[racers.index(winner)]
            await bring_home(won, attempt.cwd)
            return as_at_home(together(winner, racers), won, attempt.cwd)


class _Talking:
    """The port `Target`, for the turns of one attempt: the first spawns the worker, the others prompt it."""

    def __init__(self, told: GoentSettings, daemon: Daemon, meet: OpenDaemon) -> None:
        self._told = told
        self._daemon = daemon
        self._meet = meet
        self._worker = ""
        self._last: Working | None = None

    async def invoke(self, attempt: Attempt, witness: Witness) -> Trace:
        with _bounded(self._told, attempt) as limit:
            working = Working(self._daemon, self._meet, self._told.permission_policy, witness)
            turn = 1
            if self._worker:
                asked = prompt(attempt, self._worker)
                turn = (await self._daemon.ask("worker_prompt", asked, Prompted)).turn
            else:
                (candidate,) = self._told.candidates
                cwd = str(attempt.cwd)
                request = task(attempt, candidate, self._told, cwd=cwd, limit_s=_earlier(limit))
                self._worker = await working.spawn(request)
            self._last = working
            await working.hear(self._worker, turn)
            if working.failure:
                raise working.failure
            return working.telling.trace()

    async def close(self) -> None:
        if self._last:
            await self._last.release(self._worker)


@contextmanager
def _bounded(told: GoentSettings, attempt: Attempt) -> Generator[float]:
    """So many seconds at most; what goes wrong is the attempt's failure."""
    limit = min(told.timeout_seconds or attempt.timeout_s, attempt.timeout_s)
    try:
        with anyio.move_on_after(limit) as scope:
            yield limit
    except TargetError as error:
        if error.kind == TurnTimeout.kind:
            raise _too_long(limit) from error
        raise
    except (DaemonRefused, DaemonGone) as trouble:
        raise failure_of(trouble) from trouble
    if scope.cancelled_caught:
        raise _too_long(limit)


def _earlier(limit: float) -> float:
    return limit - EARLIER_S if limit >= LONG_S else limit


def _too_long(limit: float) -> TargetError:
    return TargetError("timeout", f"the worker took longer than {limit:g} s")
