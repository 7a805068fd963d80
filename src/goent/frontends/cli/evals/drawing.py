"""How does a run look while it runs? From where it stands to something that can be drawn."""

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from goent.evals.reports.words import numbered
from goent.evals.rows import Row
from goent.frontends.cli.evals.tally import Again, Running, Standing
from goent.frontends.cli.evals.wording import case_words, shortened, sign
from goent.frontends.cli.screen import clean, sayable
from goent.frontends.cli.words import duration, money

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

BAR = 32
LEAST_BAR = 8
MOST_TARGETS = 6
NAMES = 4
LEAST_NAME = 30
ROUNDED = 10
Reason = Callable[[Row], str]


def draw(now: Standing, width: int, reason: Reason) -> "RenderableType":
    """The bar with its figures, what is under way for each target, and the last failures."""
    from rich.console import Group  # noqa: PLC0415 (rich is loaded only where something is drawn)

    if not now.total:
        return _text((f"preparing · {duration(now.elapsed_s)}", "bold"))
    lines = [_bar_line(now, width), _counts(now), *_targets(now)]
    lines += [_failure(one, reason, width) for one in now.last]
    # A terminal puts "^C" behind the last line: if that began another one, the first would not be cleared.
    lines[-1].truncate(max(1, width - len("^C")), overflow="ellipsis")
    return Group(*lines)


def _text(*parts: tuple[str, str]) -> "Text":
    from rich.text import Text  # noqa: PLC0415 (the same)

    spelt = ((sayable(words, sys.stderr), look) for words, look in parts)
    return Text.assemble(*spelt, no_wrap=True, overflow="ellipsis")


def _bar_line(now: Standing, width: int) -> "Text":
    percent = 100 * now.done // max(1, now.total)
    said = [f"{now.done:,}/{now.total:,}", f"{percent} %"]
    if now.rate:
        said.append(pace(now.rate))
    said.append(duration(now.elapsed_s))
    if now.left_s is not None and now.done < now.total:
        said.append(f"about {duration(now.left_s)} left")
    told = " · ".join(said)
    cells = min(BAR, width - len(told) - 2)
    bar = _bar(now, cells) if cells >= LEAST_BAR else ()
    return _text(*bar, (f"  {told}" if bar else told, "bold"))


def _bar(now: Standing, cells: int) -> Sequence[tuple[str, str]]:
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


def _counts(now: Standing) -> "Text":
    kept = now.done - now.ended
    parts = [
        (f"✓ {now.passed:,} passed", "green"),
        (f"✗ {now.failed:,} failed", "red" if now.failed else "dim"),
        (f"! {numbered(now.errors, 'error')}", "yellow" if now.errors else "dim"),
    ]
    if now.skipped:
        parts.append((f"- {now.skipped:,} skipped", "dim"))
    if now.retries:
        parts.append((f"↻ {now.retries:,} tried again", "yellow"))
    if kept:
        parts.append((f"{kept:,} from before", "dim"))
    parts.append((cost_words(now), ""))
    spaced = [part for each in parts for part in (each, ("   ", ""))]
    return _text(*spaced[:-1])


def cost_words(now: Standing) -> str:
    """What it has cost: unknown is not 0."""
    if not now.ended:
        return ""
    judges = f", judges {money(now.judges_usd)}" if now.judges_usd else ""
    if not now.unknown_costs:
        return money(now.known_usd) + judges
    return (f"at least {money(now.known_usd)}" if now.known_usd else "cost unknown") + judges


def pace(rate: float) -> str:
    if rate < 1:
        return f"{rate * 60:.1f}/min"
    return f"{rate:.1f}/s" if rate < ROUNDED else f"{rate:,.0f}/s"


def _targets(now: Standing) -> "Iterator[Text]":
    busy: dict[str, list[Running]] = {name: [] for name in now.targets}
    for one in now.running:
        busy.setdefault(one.target, []).append(one)
    shown = list(busy.items())
    if len(shown) > MOST_TARGETS:
        shown.sort(key=lambda item: -len(item[1]))
    widest = max((len(clean(name)) for name in busy), default=0)
    for name, running in shown[:MOST_TARGETS]:
        said = ", ".join(_named(one) for one in running[:NAMES])
        more = f", … {len(running) - NAMES} more" if len(running) > NAMES else ""
        count = f"{len(running)} running" if running else "idle"
        yield _text(
            (f"  {clean(name):<{widest}}  ", "bold"),
            (f"{count:<11}", "cyan" if running else "dim"),
            (f"{said}{more}", "dim"),
        )
    if len(shown) > MOST_TARGETS:
        yield _text((f"  … and {len(shown) - MOST_TARGETS} more targets", "dim"))


def _named(one: Running) -> str:
    trial = f"#{one.trial}" if one.trial > 1 else ""
    return shortened(one.test_id, 40) + trial


def _failure(one: Row | Again, reason: Reason, width: int) -> "Text":
    """Names may take half of the line: the reason is what somebody looks for."""
    if isinstance(one, Again):
        return _text((again_line(one), "yellow"))
    style = "red" if one.scored else "yellow"
    case = shortened(case_words(one), max(LEAST_NAME, width // 2))
    return _text((f"{sign(one)} {case}", style), (f"  {reason(one)}", "dim"))


def again_line(one: Again) -> str:
    case = f"{one.attempt.case.suite} / {one.attempt.case.id} · {one.attempt.target}"
    why = shortened(f"{one.failure.kind}: {one.failure.message}")
    if one.by != one.attempt.target:
        return f"↻ {clean(case)}, now {clean(one.by)} is asked: {why}"
    return f"↻ {clean(case)} again in {one.again_in_s:.3g} s: {why}"
