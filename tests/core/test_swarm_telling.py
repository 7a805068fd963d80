"""What is told of a swarm fits into a model's context, and leaves nothing out silently."""

import msgspec
from msgspec.structs import replace
from swarm_views import after, given, swarm, worker

from goent.billing.token_estimate import estimate_tokens
from goent.domain.events import PermissionAsked, TaskSettled
from goent.domain.replies import ModelUse
from goent.domain.swarm_messages import SwarmTask
from goent.domain.types import Failure, Usage
from goent.domain.workspace import Conflict, Merge, UnmergedPiece
from goent.swarms.swarm_report import shorten_result, swarm_result, swarm_status
from goent.workers.worker_queries import WorkSummary

NAMES = [f"task-{n}" for n in range(8)]
LONG = "a sentence that goes on and on, with a reason in it; " * 20
HUNK = (
    "<<<<<<< task-0\n" + "left = 1\n" * 40 + "=======\n" + "right = 2\n" * 40 + ">>>>>>> task-1\n"
)
USE = ModelUse(
    provider="glm", model="glm-4", calls=3, usage=Usage(input=1000, output=50), cost_usd=0.25
)


def finished(count: int = 8):
    names = [f"task-{n}" for n in range(count)]
    view = swarm(*(SwarmTask(id=name, prompt="x") for name in names))
    view = given(view, **{name: f"w-{name}" for name in names})
    failure = Failure(kind="provider_down", message=LONG, retryable=True, retry_with="kimi")
    for number, name in enumerate(names):
        state = "failed" if number % 4 == 3 else "completed"
        view = after(
            view,
            TaskSettled(
                task=name,
                state=state,
                worker=f"w-{name}",
                failure=failure if state == "failed" else None,
            ),
        )
    workers = {f"w-{name}": worker(f"w-{name}", "completed") for name in names}
    conflicts = [
        Conflict(
            kind="hunk_conflict", path=f"src/m{n}.py", tasks=(names[0], names[1]), hunks=(HUNK,)
        )
        for n in range(9)
    ]
    merge = Merge(
        commit="c",
        merged=tuple(names[:6]),
        left=(UnmergedPiece(task=names[1], conflicts=tuple(conflicts), instructions=LONG),),
    )
    return swarm_result(
        view,
        workers,
        accounts={
            name: WorkSummary(models=(USE, replace(USE, provider="kimi", cost_usd=None)))
            for name in workers
        },
        conflicts=conflicts,
        merge=merge,
        without={names[3]: "failed"},
        now=100.0,
    )


def test_the_result_of_eight_workers_fits_into_1500_tokens():
    short = shorten_result(finished())
    assert estimate_tokens(msgspec.json.encode(short).decode()) < 1500
    assert len(short.tasks) == 8
    assert any("4 of 9 conflicts" in note for note in short.notes)
    assert any("swarm://s-1/result" in note for note in short.notes)


def test_of_many_tasks_the_failed_ones_are_listed_first():
    short = shorten_result(finished(40))
    assert {line.state for line in short.tasks[:10]} == {"failed"}
    assert any("of 40 tasks" in note for note in short.notes)


def test_totals_are_by_provider_and_an_unknown_price_stays_unknown():
    totals = finished().totals
    assert totals["glm"].cost_usd == 2.0
    assert totals["glm"].usage == Usage(input=8000, output=400)
    assert (totals["kimi"].workers, totals["kimi"].cost_usd) == (8, None)


def test_a_race_shows_everyone_who_runs_in_it():
    view = swarm(SwarmTask(id="r", prompt="x", race=("glm", "kimi")))
    view = given(given(view, r="w1"), r="w2")
    workers = {"w1": worker("w1"), "w2": worker("w2", provider="kimi")}
    told = swarm_status(view, workers, 5.0)
    assert [(line.id, line.provider) for line in told.tasks] == [("r", "glm"), ("r", "kimi")]
    assert (told.done, told.total) == (0, 1)


def test_a_swarm_waits_while_one_of_its_workers_asks():
    view = given(swarm(SwarmTask(id="a", prompt="x"), SwarmTask(id="b", prompt="x")), a="w1")
    question = PermissionAsked(id="p1", tool="bash", detail="rm", options=())
    asking = worker("w1", "waiting", questions=(question,))
    told = swarm_status(view, {"w1": asking}, 5.0)
    assert (told.state, told.tasks[0].permission, told.tasks[1].state) == (
        "waiting",
        "p1",
        "pending",
    )


def test_a_task_costs_what_all_of_its_workers_cost():
    view = given(given(swarm(SwarmTask(id="a", prompt="x")), a="w1"), a="w2")
    workers = {"w1": worker("w1", "failed", cost="0.5"), "w2": worker("w2", cost="0.25")}
    assert swarm_status(view, workers, 5.0).tasks[0].cost_usd == 0.75


def test_a_task_took_as_long_as_its_turn_however_late_its_worker_is_closed():
    view = given(swarm(SwarmTask(id="a", prompt="x")), a="w1")
    closed = replace(worker("w1", "completed"), started_at=1.0, ended_at=6.0, updated_at=90.0)
    (line,) = swarm_status(view, {"w1": closed}, 100.0).tasks
    assert line.seconds == 5.0
