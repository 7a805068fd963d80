"""How are all trials made? Each target has so many at once, and takes the next when one is done."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from goent.evals.rows import CaseKey, Row
from goent.evals.running.conduct import Conduct
from goent.evals.running.needs import Needs
from goent.evals.running.plan import Trial
from goent.evals.running.purse import Purse
from goent.evals.running.together import Work, together


class Run:
    """One pass over the trials; of one that has ended nothing stays in memory that no other waits for.

    `stopped` says why some were not made; `enough` are cases whose own limit held the rest back.
    Of the suites `failing`, a target makes no further trial once one could not be judged.
    """

    def __init__(
        self,
        conduct: Conduct,
        purse: Purse,
        needs: Needs,
        *,
        failing: Collection[str],
        kept: Sequence[Row],
    ) -> None:
        self._conduct = conduct
        self._purse = purse
        self._needs = needs
        self._failing = failing
        self._failed = {
            (row.suite, row.target)
            for row in kept
            if row.suite in failing and row.execution_status == "execution_error"
        }
        self.stopped = ""
        self.enough: set[CaseKey] = set()

    async def make(self, trials: Sequence[Trial], widths: Mapping[str, int]) -> None:
        """Raises `NotKept` when the disk takes no more; what was written stays."""
        works: list[Work] = []
        for target, width in widths.items():
            works += [partial(self._work, _queue(trials, target))] * width
        await together(works)

    async def _work(self, queue: Iterator[Trial]) -> None:
        for trial in queue:
            await self._needs.over(trial)
            if self._needs.left_out(trial):
                self._needs.ended(trial, None)
                continue
            failed = self._needs.not_passed(trial)
            if failed and trial.case.on_need_failure != "run":
                self._needs.ended(trial, await self._conduct.hold_back(trial, failed))
                continue
            if (trial.case.suite, trial.target) in self._failed:
                self.stopped = (
                    f"{trial.target!r} failed, and {trial.case.suite!r} has fail_on_error"
                )
                self._needs.ended(trial, None)
                continue
            refused = await self._purse.refuses(trial)
            if refused:
                if refused.of_case:
                    self.enough.add(trial.key)
                else:
                    self.stopped = refused.why
                self._needs.ended(trial, None, enough=refused.of_case)
                continue
            with self._purse.under_way(trial):
                row = await self._conduct.trial(trial)
            self._purse.pay([row])
            if trial.case.suite in self._failing and row.execution_status == "execution_error":
                self._failed.add((trial.case.suite, trial.target))
            self._needs.ended(trial, row)
            if None in row.costs and self._purse.has_limits and self._purse.unknown == 1:
                who = f"{'the judge of ' if row.cost_usd is not None else ''}{row.target!r}"
                self._conduct.watcher.warned(
                    f"what {who} costs is not known: the budget cannot count it"
                )


def _queue(trials: Sequence[Trial], target: str) -> Iterator[Trial]:
    """One for all who work for the target: each takes the next."""
    return (trial for trial in trials if trial.target == target)
