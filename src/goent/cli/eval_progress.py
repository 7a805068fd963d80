"""Shows the progress of an evaluation run on stderr: a live board, or a line per trial.

A terminal has a board on stderr that is drawn a few times a second, however fast cases end. Anything
else gets a line for each case that ended, and no cursor is moved. stdout is for what comes at the end.
"""

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from goent.cli import drawing
from goent.cli.eval_display import case_text, row_mark, shorten_line
from goent.cli.labels import duration, money
from goent.cli.terminal import encodable, print_stderr, strip_controls
from goent.domain.types import Value
from goent.evals.eval_ports import CaseAttempt, StreamLogFile
from goent.evals.eval_results import Row
from goent.evals.reports.report_text import duration_text, pluralize
from goent.evals.reports.trial_evidence import failure_reason, short_reason
from goent.evals.runner.attempt_recorder import RunPlan, RunWatcher
from goent.evals.traces import TargetFailure

RATE_WINDOW_S = 30.0  # the rate is that of the last so many seconds
LAST_FAILURES = 5


class RunningTrial(NamedTuple):
    """A trial that is under way."""

    target: str
    suite: str
    test_id: str
    trial: int


class RetriedAttempt(NamedTuple):
    """An attempt that failed and is made again, `by` the same target or the next fallback."""

    attempt: CaseAttempt
    failure: TargetFailure
    again_in_s: float
    by: str


class ProgressSnapshot(Value, frozen=True, kw_only=True):
    """A look at the run. `ended` counts what ended since it was started, `done` also what is from before."""

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
    """Told by the run, looked at by whoever draws, which may be another thread."""

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
        """A fallback may have run it: then it began under another target's name."""
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
        """Trials a second, of one target or of all, lately; over all of the time if lately none has ended."""
        then, counts = self._looks[0]
        before, ended = (
            each.total() if target is None else each[target] for each in (counts, self._by_target)
        )
        if ended > before and now > then:
            return (ended - before) / (now - then)
        return ended / (now - self._started) if ended and now > self._started else None

    def _left_s(self, now: float, rate: float | None) -> float | None:
        """Until the last target is done: each goes at a pace of its own, and none takes another's trials."""
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


MAX_BAR = 32
MIN_BAR = 8
MAX_TARGETS = 6
NAMES_PER_TARGET = 4
MIN_NAME = 30
WHOLE_RATE = 10
ReasonOf = Callable[[Row], str]


def draw_progress(now: ProgressSnapshot, width: int, reason: ReasonOf) -> "drawing.RenderableType":
    """The bar with its figures, what is under way for each target, and the last failures."""
    if not now.total:
        return _text((f"preparing · {duration(now.elapsed_s)}", "bold"))
    lines = [_bar_line(now, width), _count_line(now), *_target_lines(now)]
    lines += [_failure_line(one, reason, width) for one in now.last]
    # A terminal puts "^C" behind the last line: if that began another one, the first would not be cleared.
    lines[-1].truncate(max(1, width - len("^C")), overflow="ellipsis")
    return drawing.Group(*lines)


def _text(*parts: tuple[str, str]) -> "drawing.Text":

    spelt = ((encodable(words, sys.stderr), look) for words, look in parts)
    return drawing.Text.assemble(*spelt, no_wrap=True, overflow="ellipsis")


def _bar_line(now: ProgressSnapshot, width: int) -> "drawing.Text":
    percent = 100 * now.done // max(1, now.total)
    said = [f"{now.done:,}/{now.total:,}", f"{percent} %"]
    if now.rate:
        said.append(rate_text(now.rate))
    said.append(duration(now.elapsed_s))
    if now.left_s is not None and now.done < now.total:
        said.append(f"about {duration(now.left_s)} left")
    told = " · ".join(said)
    cells = min(MAX_BAR, width - len(told) - 2)
    bar = _bar_parts(now, cells) if cells >= MIN_BAR else ()
    return _text(*bar, (f"  {told}" if bar else told, "bold"))


def _bar_parts(now: ProgressSnapshot, cells: int) -> Sequence[tuple[str, str]]:
    """What was there, what passed, what failed, what could not be run, and what is still to come."""
    kept = now.done - now.ended
    counts = (kept, now.passed, now.failed, now.errors, now.skipped, len(now.running))
    looks = ("dim green", "green", "red", "yellow", "dim", "cyan")
    ends: list[int] = []
    for count in counts:
        sofar = (ends[-1] if ends else 0) + count
        ends.append(sofar)
    cuts = [min(cells, round(end / max(1, now.total) * cells)) for end in ends]
    parts = [
        (("▒" if look == "cyan" else "█") * (end - start), look)
        for look, start, end in zip(looks, (0, *cuts), cuts, strict=False)
    ]
    return [*(part for part in parts if part[0]), ("░" * (cells - cuts[-1]), "dim")]


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
        parts.append((f"↻ {now.retries:,} tried again", "yellow"))
    if kept:
        parts.append((f"{kept:,} from before", "dim"))
    parts.append((cost_text(now), ""))
    spaced = [part for each in parts for part in (each, ("   ", ""))]
    return _text(*spaced[:-1])


def cost_text(now: ProgressSnapshot) -> str:
    """What it has cost: unknown is not 0."""
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
        yield _text(
            (f"  {strip_controls(name):<{widest}}  ", "bold"),
            (f"{count:<11}", "cyan" if running else "dim"),
            (f"{said}{more}", "dim"),
        )
    if len(shown) > MAX_TARGETS:
        yield _text((f"  … and {len(shown) - MAX_TARGETS} more targets", "dim"))


def _trial_name(one: RunningTrial) -> str:
    trial = f"#{one.trial}" if one.trial > 1 else ""
    return shorten_line(one.test_id, 40) + trial


def _failure_line(one: Row | RetriedAttempt, reason: ReasonOf, width: int) -> "drawing.Text":
    """Names may take half of the line: the reason is what somebody looks for."""
    if isinstance(one, RetriedAttempt):
        return _text((retry_line(one), "yellow"))
    style = "red" if one.scored else "yellow"
    case = shorten_line(case_text(one), max(MIN_NAME, width // 2))
    return _text((f"{row_mark(one)} {case}", style), (f"  {reason(one)}", "dim"))


def retry_line(one: RetriedAttempt) -> str:
    case = f"{one.attempt.case.suite} / {one.attempt.case.id} · {one.attempt.target}"
    why = shorten_line(f"{one.failure.kind}: {one.failure.message}")
    if one.by != one.attempt.target:
        return f"↻ {strip_controls(case)}, now {strip_controls(one.by)} is asked: {why}"
    return f"↻ {strip_controls(case)} again in {one.again_in_s:.3g} s: {why}"


REFRESH_HZ = 8
LOGS_TITLE = "OpenCode logs:"


class SilentProgress:
    """For `--json` without a terminal: only what must be known is said."""

    def __init__(self) -> None:
        self._tally = ProgressCounter(time.monotonic)
        self._logs: dict[str, None] = {}

    def planned(self, plan: RunPlan) -> None:
        self._tally.planned(plan)

    def began(self, attempt: CaseAttempt) -> None:
        self._tally.began(attempt)

    def log(self, chosen: StreamLogFile) -> None:
        self._show_log(chosen)

    def failed(
        self, attempt: CaseAttempt, failure: TargetFailure, *, again_in_s: float, by: str
    ) -> None:
        self._tally.failed(RetriedAttempt(attempt, failure, again_in_s, by))

    def ended(self, row: Row) -> None:
        self._tally.ended(row)

    def warned(self, text: str) -> None:
        self._print(f"go-ent: {strip_controls(text)}", "yellow")

    def _print(self, line: str, style: str = "") -> None:
        print_stderr(line)

    def _show_log(self, chosen: StreamLogFile) -> None:
        """Each once, and as soon as it is chosen: somebody may want to follow it."""
        if chosen.file_path in self._logs:
            return
        if not self._logs:
            self._print(LOGS_TITLE, "bold")
        self._logs[chosen.file_path] = None
        which = " ".join(filter(None, (chosen.eval_case_id, _attempt_text(chosen))))
        whose = f"{chosen.target_name} {which}".rstrip()
        self._print(
            strip_controls(f"  log {len(self._logs)}: {chosen.file_path}  ({whose})"), "dim"
        )


class LineProgress(SilentProgress):
    """One line for each trial that ended, and each attempt that is made again."""

    def planned(self, plan: RunPlan) -> None:
        super().planned(plan)
        self._print(strip_controls(plan_text(plan)))

    def failed(
        self, attempt: CaseAttempt, failure: TargetFailure, *, again_in_s: float, by: str
    ) -> None:
        super().failed(attempt, failure, again_in_s=again_in_s, by=by)
        self._print(retry_line(RetriedAttempt(attempt, failure, again_in_s, by)))

    def ended(self, row: Row) -> None:
        super().ended(row)
        self._print(f"{self._tally.done}/{self._tally.total} {ended_line(row)}")


class BoardProgress(SilentProgress):
    """A terminal. Whatever is told is only counted; the board is drawn by a thread of its own."""

    def __init__(self, console: "drawing.Console") -> None:
        super().__init__()
        self._console = console
        self._out = Path()
        self._reasons: dict[tuple[object, int], str] = {}

    def planned(self, plan: RunPlan) -> None:
        super().planned(plan)
        self._out = plan.out
        self._print(strip_controls(plan_text(plan)), "dim")

    def render(self) -> "drawing.RenderableType":
        now = self._tally.snapshot()
        shown = {(one.key, one.trial) for one in now.last if isinstance(one, Row)}
        for gone in self._reasons.keys() - shown:
            del self._reasons[gone]
        return draw_progress(now, self._console.width, self._reason)

    def _reason(self, row: Row) -> str:
        """Grades are read only for what is shown, and once."""
        which = (row.key, row.trial)
        if which not in self._reasons:
            self._reasons[which] = shorten_line(failure_reason(row, self._out))
        return self._reasons[which]

    def _print(self, line: str, style: str = "") -> None:
        self._console.print(line, style=style or None, soft_wrap=True)


@contextmanager
def open_progress(*, silent: bool = False) -> Generator[RunWatcher]:
    """Whoever shows a run fits where stderr goes; the board is gone when this is left.

    `silent`: without a terminal nothing is said that nobody has to know.
    """
    if not sys.stderr.isatty():
        yield SilentProgress() if silent else LineProgress()
        return

    console = drawing.Console(stderr=True, highlight=False, markup=False, emoji=False)
    if console.is_dumb_terminal:
        yield SilentProgress() if silent else LineProgress()
        return
    board = BoardProgress(console)
    with drawing.Live(
        console=console,
        get_renderable=board.render,
        refresh_per_second=REFRESH_HZ,
        transient=True,
        redirect_stdout=False,
    ):
        yield board


def plan_text(plan: RunPlan) -> str:
    kept = f", {plan.kept} of them from before" if plan.kept else ""
    trials = f"{plan.total} trial{'s' * (plan.total != 1)}{kept}"
    return f"{trials}, for {', '.join(plan.targets) or 'nobody'}; all is kept in {plan.out}"


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


def _attempt_text(chosen: StreamLogFile) -> str:
    return f"attempt {chosen.attempt + 1}" if chosen.attempt else ""
