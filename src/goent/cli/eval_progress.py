"""Shows the progress of an evaluation run on stderr, on the live board or in lines.

However fast cases end, the board is drawn only a few times a second; stdout is for the summary.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from goent.cli import drawing
from goent.cli.board import Board, bar_line, open_stderr_board, styled_line
from goent.cli.eval_display import case_text, row_mark, shorten_line
from goent.cli.labels import duration, money
from goent.cli.terminal import print_stderr, strip_controls
from goent.domain.types import Value
from goent.evals.eval_ports import CaseAttempt, StreamLogFile
from goent.evals.eval_results import Row
from goent.evals.reports.report_text import duration_text, pluralize
from goent.evals.reports.trial_evidence import failure_reason, short_reason
from goent.evals.runner.attempt_recorder import RunPlan, RunWatcher
from goent.evals.traces import TargetFailure

RATE_WINDOW_S = 30.0  # the rate is measured over this time
LAST_FAILURES = 5


class RunningTrial(NamedTuple):
    """A running trial."""

    target: str
    suite: str
    test_id: str
    trial: int


class RetriedAttempt(NamedTuple):
    """A failed attempt that is retried, `by` the same target or the next fallback."""

    attempt: CaseAttempt
    failure: TargetFailure
    again_in_s: float
    by: str


class ProgressSnapshot(Value, frozen=True, kw_only=True):
    """The run at one moment. `ended` counts trials that ended in this run, `done` earlier ones too."""

    total: int
    done: int
    ended: int
    passed: int
    failed: int
    errors: int
    skipped: int
    retries: int
    known_usd: float
    unknown_costs: int
    judges_usd: float
    elapsed_s: float
    rate: float | None
    left_s: float | None
    targets: tuple[str, ...]
    running: tuple[RunningTrial, ...]
    last: tuple[Row | RetriedAttempt, ...]


class ProgressCounter:
    """Counts trials, and takes snapshots of the counts, possibly from another thread."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._started = clock()
        self._plan: RunPlan | None = None
        self._running: dict[RunningTrial, None] = {}
        self._passed = self._failed = self._errors = self._skipped = self._retries = 0
        self._known_usd = 0.0
        self._unknown_costs = 0
        self._judges_usd = 0.0
        self._last: deque[Row | RetriedAttempt] = deque(maxlen=LAST_FAILURES)
        self._by_target: Counter[str] = Counter()
        self._looks: deque[tuple[float, Counter[str]]] = deque()

    @property
    def done(self) -> int:
        kept = self._plan.kept if self._plan else 0
        return kept + self._ended

    @property
    def total(self) -> int:
        return max(self.done, self._plan.total if self._plan else 0)

    def planned(self, plan: RunPlan) -> None:
        with self._lock:
            self._plan = plan
            self._started = self._clock()

    def began(self, attempt: CaseAttempt) -> None:
        with self._lock:
            self._running[_running_trial(attempt)] = None

    def failed(self, again: RetriedAttempt) -> None:
        with self._lock:
            self._retries += 1
            self._running.pop(_running_trial(again.attempt), None)
            self._last.append(again)

    def ended(self, row: Row) -> None:
        with self._lock:
            self._remove_running(RunningTrial(row.target, row.suite, row.test_id, row.trial))
            self._passed += row.execution_status == "ok"
            self._failed += row.execution_status == "quality_failure"
            self._errors += row.execution_status == "execution_error"
            self._skipped += row.skipped
            self._by_target[row.target] += 1
            if row.cost_usd is None:
                self._unknown_costs += 1
            else:
                self._known_usd += row.cost_usd
            self._judges_usd += row.judge_cost_usd or 0.0
            if not row.passed:
                self._last.append(row)

    def snapshot(self) -> ProgressSnapshot:
        with self._lock:
            now = self._clock()
            ended = self._ended
            self._record_look(now)
            rate = self._rate(now, None)
            return ProgressSnapshot(
                total=self.total,
                done=self.done,
                ended=ended,
                passed=self._passed,
                failed=self._failed,
                errors=self._errors,
                skipped=self._skipped,
                retries=self._retries,
                known_usd=self._known_usd,
                unknown_costs=self._unknown_costs,
                judges_usd=self._judges_usd,
                elapsed_s=now - self._started,
                rate=rate,
                left_s=self._left_s(now, rate),
                targets=self._plan.targets if self._plan else (),
                running=tuple(self._running),
                last=tuple(self._last),
            )

    @property
    def _ended(self) -> int:
        return self._passed + self._failed + self._errors + self._skipped

    def _remove_running(self, ended: RunningTrial) -> None:
        """Remove a trial; a fallback may have started it under another target's name."""
        if ended in self._running:
            del self._running[ended]
            return
        other = next((one for one in self._running if one[1:] == ended[1:]), None)
        if other:
            del self._running[other]

    def _record_look(self, now: float) -> None:
        self._looks.append((now, self._by_target.copy()))
        while len(self._looks) > 2 and self._looks[1][0] <= now - RATE_WINDOW_S:  # noqa: PLR2004 (both ends)
            self._looks.popleft()

    def _rate(self, now: float, target: str | None) -> float | None:
        """Recent trials per second, of one target or all; over the whole run if none ended recently."""
        then, counts = self._looks[0]
        before, ended = (
            each.total() if target is None else each[target] for each in (counts, self._by_target)
        )
        if ended > before and now > then:
            return (ended - before) / (now - then)
        return ended / (now - self._started) if ended and now > self._started else None

    def _left_s(self, now: float, rate: float | None) -> float | None:
        """Time until the slowest target is done, each at its own rate."""
        if not rate:
            return None
        times = [(self.total - self.done) / rate]
        to_make = self._plan.to_make.items() if self._plan else ()
        for target, count in to_make:
            if own := self._rate(now, target):
                times.append((count - self._by_target[target]) / own)
        return max(times)


def _running_trial(attempt: CaseAttempt) -> RunningTrial:
    return RunningTrial(attempt.target, attempt.case.suite, attempt.case.id, attempt.trial)


MAX_TARGETS = 6
NAMES_PER_TARGET = 4
MIN_NAME = 30
WHOLE_RATE = 10
ReasonOf = Callable[[Row], str]


def draw_progress(now: ProgressSnapshot, width: int, reason: ReasonOf) -> "drawing.RenderableType":
    """The bar with its figures, the running trials of each target, and the last failures."""
    if not now.total:
        return styled_line((f"preparing · {duration(now.elapsed_s)}", "bold"))
    lines = [_bar_line(now, width), _count_line(now), *_target_lines(now)]
    lines += [_failure_line(one, reason, width) for one in now.last]
    # A terminal puts "^C" behind the last line: if that began another one, the first would not be cleared.
    lines[-1].truncate(max(1, width - len("^C")), overflow="ellipsis")
    return drawing.Group(*lines)


def _bar_line(now: ProgressSnapshot, width: int) -> "drawing.Text":
    percent = 100 * now.done // max(1, now.total)
    words = [f"{now.done:,}/{now.total:,}", f"{percent} %"]
    if now.rate:
        words.append(rate_text(now.rate))
    words.append(duration(now.elapsed_s))
    if now.left_s is not None and now.done < now.total:
        words.append(f"about {duration(now.left_s)} left")
    shares = (
        (now.done - now.ended, "█", "dim green"),
        (now.passed, "█", "green"),
        (now.failed, "█", "red"),
        (now.errors, "█", "yellow"),
        (now.skipped, "█", "dim"),
        (len(now.running), "▒", "cyan"),
    )
    return bar_line(shares, now.total, " · ".join(words), width, "bold")


def _count_line(now: ProgressSnapshot) -> "drawing.Text":
    kept = now.done - now.ended
    parts = [
        (f"✓ {now.passed:,} passed", "green"),
        (f"✗ {now.failed:,} failed", "red" if now.failed else "dim"),
        (f"! {pluralize(now.errors, 'error')}", "yellow" if now.errors else "dim"),
    ]
    if now.skipped:
        parts.append((f"- {now.skipped:,} skipped", "dim"))
    if now.retries:
        parts.append((f"↻ {now.retries:,} retried", "yellow"))
    if kept:
        parts.append((f"{kept:,} already done", "dim"))
    parts.append((cost_text(now), ""))
    spaced = [part for each in parts for part in (each, ("   ", ""))]
    return styled_line(*spaced[:-1])


def cost_text(now: ProgressSnapshot) -> str:
    """The cost so far; unknown costs are not counted as 0."""
    if not now.ended:
        return ""
    judges = f", judges {money(now.judges_usd)}" if now.judges_usd else ""
    if not now.unknown_costs:
        return money(now.known_usd) + judges
    return (f"at least {money(now.known_usd)}" if now.known_usd else "cost unknown") + judges


def rate_text(rate: float) -> str:
    if rate < 1:
        return f"{rate * 60:.1f}/min"
    return f"{rate:.1f}/s" if rate < WHOLE_RATE else f"{rate:,.0f}/s"


def _target_lines(now: ProgressSnapshot) -> "Iterator[drawing.Text]":
    busy: dict[str, list[RunningTrial]] = {name: [] for name in now.targets}
    for one in now.running:
        busy.setdefault(one.target, []).append(one)
    shown = list(busy.items())
    if len(shown) > MAX_TARGETS:
        shown.sort(key=lambda item: -len(item[1]))
    widest = max((len(strip_controls(name)) for name in busy), default=0)
    for name, running in shown[:MAX_TARGETS]:
        said = ", ".join(_trial_name(one) for one in running[:NAMES_PER_TARGET])
        more = (
            f", … {len(running) - NAMES_PER_TARGET} more" if len(running) > NAMES_PER_TARGET else ""
        )
        count = f"{len(running)} running" if running else "idle"
        yield styled_line(
            (f"  {strip_controls(name):<{widest}}  ", "bold"),
            (f"{count:<11}", "cyan" if running else "dim"),
            (f"{said}{more}", "dim"),
        )
    if len(shown) > MAX_TARGETS:
        yield styled_line((f"  … and {len(shown) - MAX_TARGETS} more targets", "dim"))


def _trial_name(one: RunningTrial) -> str:
    trial = f"#{one.trial}" if one.trial > 1 else ""
    return shorten_line(one.test_id, 40) + trial


def _failure_line(one: Row | RetriedAttempt, reason: ReasonOf, width: int) -> "drawing.Text":
    """A failure; its name takes at most half of the line, for the reason matters more."""
    if isinstance(one, RetriedAttempt):
        return styled_line((retry_line(one), "yellow"))
    style = "red" if one.scored else "yellow"
    case = shorten_line(case_text(one), max(MIN_NAME, width // 2))
    return styled_line((f"{row_mark(one)} {case}", style), (f"  {reason(one)}", "dim"))


def retry_line(one: RetriedAttempt) -> str:
    case = f"{one.attempt.case.suite} / {one.attempt.case.id} · {one.attempt.target}"
    why = shorten_line(f"{one.failure.kind}: {one.failure.message}")
    if one.by != one.attempt.target:
        return f"↻ {strip_controls(case)}, retrying on {strip_controls(one.by)}: {why}"
    return f"↻ {strip_controls(case)} retry in {one.again_in_s:.3g} s: {why}"


LOGS_TITLE = "OpenCode logs:"


class EvalProgress:
    """Counts what a run reports. A live board draws the counts; anything else gets a line per trial.

    `silent`: without a live board, only warnings and log files are shown.
    """

    def __init__(self, *, silent: bool = False) -> None:
        self.board = Board(print_stderr)
        self._silent = silent
        self._counter = ProgressCounter(time.monotonic)
        self._logs: set[str] = set()
        self._out = Path()
        self._reasons: dict[tuple[object, int], str] = {}

    def planned(self, plan: RunPlan) -> None:
        self._counter.planned(plan)
        self._out = plan.out
        if self.board.is_live or not self._silent:
            self.board.line(plan_text(plan), "dim")

    def began(self, attempt: CaseAttempt) -> None:
        self._counter.began(attempt)

    def failed(
        self, attempt: CaseAttempt, failure: TargetFailure, *, again_in_s: float, by: str
    ) -> None:
        retried = RetriedAttempt(attempt, failure, again_in_s, by)
        self._counter.failed(retried)
        self._trial_line(lambda: retry_line(retried))

    def ended(self, row: Row) -> None:
        self._counter.ended(row)
        self._trial_line(lambda: f"{self._counter.done}/{self._counter.total} {ended_line(row)}")

    def warned(self, text: str) -> None:
        self.board.line(f"go-ent: {text}", "yellow")

    def log(self, chosen: StreamLogFile) -> None:
        """Show each log file once, as soon as it is chosen: somebody may want to follow it."""
        if chosen.file_path in self._logs:
            return
        if not self._logs:
            self.board.line(LOGS_TITLE, "bold")
        self._logs.add(chosen.file_path)
        attempt = f"attempt {chosen.attempt + 1}" if chosen.attempt else ""
        whose = " ".join(filter(None, (chosen.target_name, chosen.eval_case_id, attempt)))
        self.board.line(f"  log {len(self._logs)}: {chosen.file_path}  ({whose})", "dim")

    def draw(self, width: int) -> "drawing.RenderableType":
        now = self._counter.snapshot()
        shown = {(one.key, one.trial) for one in now.last if isinstance(one, Row)}
        for gone in self._reasons.keys() - shown:
            del self._reasons[gone]
        return draw_progress(now, width, self._reason)

    def _trial_line(self, text: Callable[[], str]) -> None:
        if not (self.board.is_live or self._silent):
            self.board.line(text())

    def _reason(self, row: Row) -> str:
        """Grades are read only for what is shown, and once."""
        which = (row.key, row.trial)
        if which not in self._reasons:
            self._reasons[which] = shorten_line(failure_reason(row, self._out))
        return self._reasons[which]


@contextmanager
def open_progress(*, silent: bool = False) -> Generator[RunWatcher]:
    """The progress of a run on stderr; its live board is gone when this is left."""
    progress = EvalProgress(silent=silent)
    with open_stderr_board(progress.draw) as progress.board:
        yield progress


def plan_text(plan: RunPlan) -> str:
    kept = f", {plan.kept} of them already done" if plan.kept else ""
    trials = f"{plan.total} trial{'s' * (plan.total != 1)}{kept}"
    return f"{trials}, for {', '.join(plan.targets) or 'no target'}; results go to {plan.out}"


def ended_line(row: Row) -> str:
    """How a trial ended, in one line."""
    spent = (
        "" if row.duration_ms is None else duration_text(row.duration_ms),
        "" if row.cost_usd is None or row.held_back_by else money(row.cost_usd),
        f"attempt {row.attempt + 1}" if row.attempt else "",
    )
    told = ", ".join(part for part in spent if part)
    why = "" if row.passed else f": {shorten_line(short_reason(row))}"
    return strip_controls(
        f"{row_mark(row)} {case_text(row)}{f' ({told})' if told else ''}{why}".replace("\n", " ")
    )
