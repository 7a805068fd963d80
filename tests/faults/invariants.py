"""What has to be true after every story: of the journal, of the prompts and of the books."""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from scripted_project import assert_grammar
from stories import ABSURD, SURVIVED, Task
from strikes import Scene
from world import World

from goent.domain.events import AnyEvent, SessionOpened, TurnEnded, UsageReported, WorkerSpawned
from goent.domain.sandbox_port import SandboxLevelName
from goent.domain.types import Usage
from goent.system.project_folders import state_dir
from goent.testing.scripted_calls import Call

Events = dict[str, list[AnyEvent]]


class Row(NamedTuple):
    """A line of the ledger."""

    worker: str
    usage: Usage
    known: bool


def assert_ended_once(journal: Events, told: Sequence[str | None]) -> None:
    """Every worker that there is, and every one that the lead was told of."""
    assert {worker for worker in told if worker} <= journal.keys()
    for events in journal.values():
        assert_grammar(events)
        assert any(isinstance(event, TurnEnded) for event in events)


def assert_all_were_confined(journal: Events, level: SandboxLevelName) -> None:
    """No worker of a story has been without its sandbox, before or after a fault."""
    for worker, events in journal.items():
        assert isinstance(events[0], WorkerSpawned)
        assert events[0].sandbox == level, f"{worker} worked in {events[0].sandbox!r}"


def assert_who_could_finish_did(scene: Scene, journal: Events, tasks: Sequence[Task]) -> None:
    """A fault around a worker is no reason to fail, but for the death of its daemon."""
    survivors = {task.prompt: task for task in tasks if task.trouble in SURVIVED}
    for worker, events in journal.items():
        if task := survivors.get(_task(events)):
            first = next(event for event in events if isinstance(event, TurnEnded))
            died = first.failure is not None and first.failure.kind == "daemon_died"
            assert first.state == "completed" or (died and scene.daemons_killed), (
                f"{worker} ({task}): {first}"
            )


def assert_no_prompt_was_repeated(world: World, journal: Events, tasks: Sequence[Task]) -> None:
    """One task, one worker, one session, and in each conversation it is said once."""
    for task in tasks:
        workers = [worker for worker, events in journal.items() if _task(events) == task.prompt]
        assert len(workers) <= 1, f"{task.prompt!r} was given to {workers}"
        sessions: set[str | None] = set()
        for made in _calls_of(world, task):
            assert made.request
            said = [m for m in made.request.messages if m.role == "user" and task.prompt in m.text]
            assert len(said) == 1, f"{task.prompt!r} was said {len(said)} times in {made}"
            sessions.add(made.session)
        assert len(sessions) <= 1, f"{task.prompt!r} was said in {sessions}"


def assert_the_books_are_right(scene: Scene, journal: Events, tasks: Sequence[Task]) -> None:
    """A call that came back whole is in the ledger to the token; any other one is there, as an estimate or unknown.

    Only a call that was under way when the daemon was killed may have come back whole unseen.
    """
    rows = ledger(scene.world)
    for worker, events in journal.items():
        task = next(task for task in tasks if task.prompt == _task(events))
        calls = _calls_of(scene.world, task, events)
        mine = [row for row in rows if row.worker == worker]
        exact = Counter(row.usage for row in mine if row.known)
        unknown = len(mine) - exact.total()
        whole = Counter(call.usage for call in calls if _is_whole(call))
        billed = [call for call in calls if call.usage.total]
        where = f"{worker} ({task}): ledger {mine}, calls {[str(call) for call in calls]}"
        assert not exact - whole, f"the ledger invents calls: {where}"
        assert (whole - exact).total() <= scene.daemons_killed, f"calls are not exact: {where}"
        assert len(mine) >= len(billed), f"calls are missing in the ledger: {where}"
        cut = len(calls) - whole.total()
        assert unknown <= cut + scene.daemons_killed, f"known calls are called unknown: {where}"
        reported = Counter(
            event.usage
            for event in events
            if isinstance(event, UsageReported)
            and event.cost_usd is not None
            and event.source != "estimate"
        )
        assert not reported - exact, f"the journal knows what the ledger does not: {where}"


def ledger(world: World) -> list[Row]:
    with closing(sqlite3.connect(state_dir(world.env) / "ledger.db")) as sql:
        assert sql.execute("SELECT count(*) FROM under_way").fetchone() == (0,)
        rows = sql.execute(
            "SELECT worker, cost_usd, source, input, output, cache_read, cache_write, reasoning"
            " FROM calls"
        ).fetchall()
    return [
        Row(
            worker,
            Usage(input=i, output=o, cache_read=read, cache_write=write, reasoning=thought),
            cost is not None and source != "estimate",
        )
        for worker, cost, source, i, o, read, write, thought in rows
    ]


def _task(events: Sequence[AnyEvent]) -> str:
    assert isinstance(events[0], WorkerSpawned)
    return events[0].task


def _calls_of(world: World, task: Task, events: Sequence[AnyEvent] = ()) -> list[Call]:
    """The calls in which the task is told, and with its worker's events also those in which not.

    A prompt may be lost with its daemon before the session has it; the session goes on without.
    """
    sessions = {event.token for event in events if isinstance(event, SessionOpened)}
    return [
        made
        for made in world.models.calls
        if made.request
        and (made.session in sessions or any(task.prompt in m.text for m in made.request.messages))
    ]


def _is_whole(made: Call) -> bool:
    bad = made.fault or made.disconnected or made.ended is None or made.status != 200
    return not bad and made.usage != ABSURD
