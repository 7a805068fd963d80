"""How do several workers try the same attempt? Each in a copy of its directory; the first good one's becomes the attempt's."""

import shutil
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import msgspec
from anyio.to_thread import run_sync
from msgspec.structs import replace

from goent.domain.requests import SpawnRequest
from goent.domain.types import Value
from goent.evals.ports import LogChosen, TargetError, Witness
from goent.evals.targets.goent.daemon import DaemonGone, DaemonRefused
from goent.evals.targets.goent.telling import counted
from goent.evals.targets.goent.working import Working, failure_of
from goent.evals.traces import PermissionDecision, TokenUsage, Trace, TracedMessage


class Beside:
    """The witness of one racer. Messages are told of whoever has most; what is spent, of all together."""

    def __init__(self, witness: Witness, all_: "list[Beside]") -> None:
        self._witness = witness
        self._all = all_
        self.said: dict[int, TracedMessage] = {}
        self.so_far: Spent | None = None
        all_.append(self)

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        ahead = self._foremost()
        self.said[number] = message
        if self._foremost() is not self:
            return
        fresh = {number: message} if ahead is self else self.said
        for each, whole in fresh.items():
            self._witness.message(each, whole)

    def spent(self, usage: TokenUsage | None, cost_usd: float | None) -> None:
        self.so_far = Spent(usage=usage, cost_usd=cost_usd)
        in_all = total([one.so_far for one in self._all if one.so_far])
        self._witness.spent(in_all.usage, in_all.cost_usd)

    def _foremost(self) -> "Beside":
        return max(self._all, key=lambda one: len(one.said))

    def decided(self, decision: PermissionDecision) -> None:
        self._witness.decided(decision)

    def log(self, chosen: LogChosen) -> None:
        self._witness.log(chosen)

    def warn(self, text: str) -> None:
        self._witness.warn(text)


class Spent(Value, frozen=True, kw_only=True):
    """`cost_usd` is None where the price of something is not known."""

    usage: TokenUsage | None = None
    cost_usd: float | None = None


def total(spent: Sequence[Spent]) -> Spent:
    used = [one.usage for one in spent if one.usage]
    costs = [one.cost_usd for one in spent if one.cost_usd is not None]
    return Spent(
        usage=TokenUsage(
            input=sum(one.input for one in used),
            output=sum(one.output for one in used),
            cached=sum(one.cached for one in used),
            reasoning=sum(one.reasoning for one in used),
        )
        if used
        else None,
        cost_usd=sum(costs) if costs and len(costs) == len(spent) else None,
    )


async def raced(racers: Sequence[Working], requests: Sequence[SpawnRequest]) -> Working:
    """Who has won. The others have been given up; if none stands, one whose work can at least be graded.

    Raises a racer's `TargetError` if there is nothing to grade: the first one that is worth another try.
    """
    standing: list[Working] = []

    def over(racer: Working) -> None:
        if racer.stands and not standing:
            standing.append(racer)
            for other in racers:
                if other is not racer:
                    other.give_up()

    async def run(racer: Working, request: SpawnRequest) -> None:
        try:
            await racer.work(request, over=partial(over, racer))
        except TargetError as error:
            racer.refused = error
        except (DaemonRefused, DaemonGone) as trouble:
            racer.refused = failure_of(trouble)

    async with anyio.create_task_group() as group:
        for racer, request in zip(racers, requests, strict=True):
            group.start_soon(run, racer, request)
    gradable = (racer for racer in racers if racer.failure is None)
    winner = next(chain(standing, gradable), None)
    if winner is None:
        failures = [racer.failure for racer in racers if racer.failure]
        raise next((failure for failure in failures if failure.retryable), failures[0])
    return winner


def spent_by(racers: Sequence[Working]) -> Spent:
    """All of them together; of one that began and told of no call, nobody knows what it cost."""
    tellings = [racer.telling for racer in racers if racer.telling.spawned]
    return total([Spent(usage=counted(one.usage), cost_usd=one.cost) for one in tellings])


def together(winner: Working, racers: Sequence[Working]) -> Trace:
    """The winner's trace, with what all of them have spent."""
    spent = spent_by(racers)
    calls = [racer.telling.llm_calls or 0 for racer in racers]
    return replace(
        winner.telling.trace(),
        usage=spent.usage,
        cost_usd=spent.cost_usd,
        llm_calls=sum(calls) if spent.usage else None,
    )


@asynccontextmanager
async def copies(
    of: Path, count: int, scratch: Path | None = None
) -> AsyncGenerator[tuple[Path, ...]]:
    """As many copies of a directory, in a folder in `scratch` that is gone in the end."""
    folder = TemporaryDirectory(prefix="goent-race-", dir=scratch, ignore_cleanup_errors=True)
    try:
        made = tuple(Path(folder.name) / str(number) for number in range(1, count + 1))
        for copy in made:
            await run_sync(partial(shutil.copytree, of, copy, symlinks=True))
        yield made
    finally:
        with anyio.CancelScope(shield=True):
            await run_sync(folder.cleanup)  # whole workspaces: others go on meanwhile


async def bring_home(copy: Path, home: Path) -> None:
    """The directory is as the copy is. It stays the same one: somebody may stand in it."""
    await run_sync(_exchange, copy, home)


def _exchange(copy: Path, home: Path) -> None:
    for entry in home.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    for entry in copy.iterdir():
        shutil.move(entry, home / entry.name)


def as_at_home(trace: Trace, copy: Path, home: Path) -> Trace:
    """Paths in the copy, as they are called at home."""
    written = msgspec.json.encode(trace).replace(_quoted(copy), _quoted(home))
    return msgspec.json.decode(written, type=Trace)


def _quoted(path: Path) -> bytes:
    return msgspec.json.encode(str(path))[1:-1]
