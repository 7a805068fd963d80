"""What a swarm needs next, from nothing but its events and its workers."""

import pytest
from msgspec.structs import replace
from swarm_views import DIED, after, given, steps, swarm, worker

from goent.domain.events import SwarmCancelled, TaskGiven, TaskRefused, TaskReopened, TaskSettled
from goent.domain.swarm_messages import SwarmTask
from goent.domain.types import Failure, Pin
from goent.swarms.swarm_steps import GiveTask, ResumeWorker, SettleTask, StopWorker
from goent.workers.views import SwarmView

A = SwarmTask(id="a", prompt="do a")
B = SwarmTask(id="b", prompt="do b")
C = SwarmTask(id="c", prompt="do c", after=("a", "b"))
RACE = SwarmTask(id="r", prompt="race", race=("cheap", "strong"))
STAGED = SwarmTask(id="r", prompt="race", race=("cheap", "strong"), staged=True)
BROKEN = Failure(kind="provider_down", message="down", retryable=True)


def give(task: str, provider: str | None = None, avoid: tuple[str, ...] = ()) -> GiveTask:
    return GiveTask(task=task, pin=Pin(provider=provider), avoid=avoid)


@pytest.mark.spec("P29")
def test_independent_tasks_begin_at_once_and_a_dependent_one_waits():
    assert steps(swarm(A, B, C)) == [give("a"), give("b")]


def test_no_more_than_the_limit_run_at_once():
    view = swarm(A, B, concurrency=1)
    assert steps(view) == [give("a")]
    assert steps(given(view, a="w1"), [worker("w1")]) == []
    done = given(view, a="w1")
    assert give("b") in steps(done, [worker("w1", "completed")])


def test_a_worker_that_is_being_made_takes_a_place():
    view = given(swarm(A, B, concurrency=1), a="w1")
    assert steps(view, [], beginning=["w1"]) == []


def test_a_dependent_task_begins_when_all_before_it_are_done():
    view = given(swarm(A, B, C), a="w1", b="w2")
    view = after(view, TaskSettled(task="a", state="completed", worker="w1"))
    assert steps(view, [worker("w1", "completed"), worker("w2")]) == []
    view = after(view, TaskSettled(task="b", state="completed", worker="w2"))
    assert steps(view, [worker("w1", "completed"), worker("w2", "completed")]) == [give("c")]


@pytest.mark.spec("P32")
def test_a_failure_blocks_what_comes_after_it_and_nothing_else():
    view = given(swarm(A, B, C), a="w1", b="w2")
    found = steps(view, [worker("w1", "failed", failure=BROKEN), worker("w2")])
    assert found == [SettleTask(task="a", state="failed", worker="w1", failure=BROKEN)]
    view = after(view, TaskSettled(task="a", state="failed", worker="w1", failure=BROKEN))
    (blocked,) = steps(view, [worker("w1", "failed", failure=BROKEN), worker("w2")])
    assert isinstance(blocked, SettleTask)
    assert (blocked.task, blocked.state) == ("c", "blocked")
    assert blocked.failure
    assert "a (failed)" in blocked.failure.message
    assert "swarm_retry" in blocked.failure.message


def test_a_failed_task_is_tried_elsewhere_so_often_as_wished():
    view = given(swarm(A, retries=1), a="w1")
    down = worker("w1", "failed", failure=BROKEN)
    assert steps(view, [down]) == [give("a", avoid=("glm",))]
    view = after(view, TaskGiven(task="a", worker="w2"))
    again = worker("w2", "failed", failure=BROKEN, provider="kimi")
    (settled,) = steps(view, [down, again])
    assert isinstance(settled, SettleTask)
    assert (settled.state, settled.worker) == ("failed", "w2")


def test_a_pinned_task_is_tried_again_where_its_pin_says():
    pinned = SwarmTask(id="a", prompt="do a", provider="kimi")
    view = given(swarm(pinned, retries=1), a="w1")
    assert steps(view, [worker("w1", "failed", failure=BROKEN)]) == [give("a", "kimi")]


def test_what_no_retry_can_help_is_not_retried():
    view = given(swarm(A, retries=3), a="w1")
    broke = Failure(kind="budget_exceeded", message="")
    view = after(view, TaskRefused(task="a", worker="w1", failure=broke))
    assert steps(view) == [SettleTask(task="a", state="failed", worker="w1", failure=broke)]


def test_a_claim_without_an_edit_or_a_tool_is_a_failure():
    view = given(swarm(A), a="w1")
    idle = worker("w1", "completed", lines=0, tools=0)
    spawned = replace(idle.spawned, edits_asked=True)
    (settled,) = steps(view, [replace(idle, spawned=spawned)])
    assert isinstance(settled, SettleTask)
    assert (settled.state, settled.failure and settled.failure.kind) == ("failed", "refuted")


def test_a_folder_that_was_removed_is_a_failure():
    view = given(swarm(A), a="w1")
    (settled,) = steps(view, [worker("w1", "completed", work=None)])
    assert isinstance(settled, SettleTask)
    assert settled.failure
    assert settled.failure.kind == "workspace_lost"


def test_after_a_crash_a_worker_with_a_session_goes_on():
    view = given(swarm(A), a="w1")
    died = worker("w1", "failed", failure=DIED)
    assert steps(view, [died]) == [ResumeWorker(worker="w1")]


def test_after_a_crash_a_worker_without_a_session_is_replaced_and_costs_no_retry():
    view = given(swarm(A), a="w1")
    assert steps(view) == [give("a")], "given, and then go-ent died"
    early = worker("w1", "failed", failure=DIED, token="", open=False)
    assert steps(view, [early]) == [give("a")]


@pytest.mark.parametrize("state", ["running", "waiting"])
def test_cancelling_stops_what_runs_and_then_settles(state: str):
    view = given(swarm(A, B), a="w1")
    view = after(view, SwarmCancelled(reason="enough"))
    assert steps(view, [worker("w1", state)]) == [
        StopWorker(worker="w1", reason="enough"),
        SettleTask(task="b", state="cancelled"),
    ]
    found = steps(view, [worker("w1", "cancelled")])
    assert SettleTask(task="a", state="cancelled", worker="w1") in found


def test_one_task_can_be_cancelled():
    view = after(swarm(A, B), SwarmCancelled(reason="no", tasks=("a",)))
    assert steps(view) == [SettleTask(task="a", state="cancelled"), give("b")]


def test_a_worker_that_somebody_cancelled_ends_its_task():
    view = given(swarm(A, retries=2), a="w1")
    (settled,) = steps(view, [worker("w1", "cancelled")])
    assert settled == SettleTask(task="a", state="cancelled", worker="w1")


def test_a_reopened_task_goes_where_it_is_sent():
    view = given(swarm(A), a="w1")
    view = after(view, TaskSettled(task="a", state="failed", worker="w1", failure=BROKEN))
    view = after(view, TaskReopened(task="a", pin=Pin(provider="kimi"), avoid=("glm",)))
    assert steps(view, [worker("w1", "failed", failure=BROKEN)]) == [give("a", "kimi", ("glm",))]
    assert view.tasks["a"].workers == ("w1",)


def test_a_task_that_goes_elsewhere_leaves_its_own_provider():
    bound = SwarmTask(id="a", prompt="x", provider="glm", model="glm-4")
    view = given(swarm(bound), a="w1")
    view = after(view, TaskSettled(task="a", state="failed", worker="w1", failure=BROKEN))
    broken = [worker("w1", "failed", failure=BROKEN)]
    again = after(view, TaskReopened(task="a"))
    (same,) = steps(again, broken)
    assert same == GiveTask(task="a", pin=Pin(provider="glm", model="glm-4"))
    elsewhere = after(view, TaskReopened(task="a", avoid=("glm",)))
    assert steps(elsewhere, broken) == [give("a", avoid=("glm",))]


# Races


def raced(view: SwarmView, **workers: str) -> SwarmView:
    for name, racer in workers.items():
        view = after(view, TaskGiven(task="r", worker=name, pin=Pin(provider=racer)))
    return view


def test_a_race_begins_everywhere_at_once():
    assert steps(swarm(RACE)) == [give("r", "cheap"), give("r", "strong")]


def test_the_first_verified_one_wins_and_the_rest_is_stopped():
    view = raced(swarm(RACE, verify=("true",)), w1="cheap", w2="strong")
    slow, quick = worker("w1"), worker("w2", "completed", verified=True, provider="strong")
    stop, settle = steps(view, [slow, quick])
    assert isinstance(stop, StopWorker)
    assert stop.worker == "w1"
    assert "strong has won" in stop.reason
    assert settle == SettleTask(task="r", state="completed", worker="w2")


def test_who_is_still_being_made_when_the_race_is_won_is_stopped_too():
    view = raced(swarm(RACE, verify=("true",)), w1="cheap", w2="strong")
    won = worker("w2", "completed", verified=True, provider="strong")
    view = after(view, TaskSettled(task="r", state="completed", worker="w2"))
    (stop,) = steps(view, [won], beginning=["w1"])
    assert isinstance(stop, StopWorker)
    assert stop.worker == "w1"
    (stop,) = steps(view, [won, worker("w1")])
    assert isinstance(stop, StopWorker)
    assert steps(view, [won, worker("w1", "cancelled")]) == []
    assert steps(view, [worker("w2"), worker("w1", "cancelled")]) == [], "the winner may go on"


def test_claims_are_compared_when_all_are_in():
    view = raced(swarm(RACE), w1="cheap", w2="strong")
    first = worker("w1", "completed", lines=30)
    assert steps(view, [first, worker("w2")]) == []
    second = worker("w2", "completed", lines=4)
    assert steps(view, [first, second]) == [SettleTask(task="r", state="completed", worker="w2")]


@pytest.mark.parametrize(
    ("one", "other", "wins"),
    [
        ({"lines": 2, "cost": "9"}, {"lines": 3, "cost": "1"}, "w1"),
        ({"lines": 2, "cost": "9"}, {"lines": 2, "cost": "1"}, "w2"),
        ({"seconds": 9.0}, {"seconds": 2.0}, "w2"),
        ({"lines": 0}, {"lines": 50}, "w2"),
    ],
    ids=["the least change", "then the cost", "then the time", "nothing changed comes last"],
)
def test_ties_are_broken(one: dict[str, object], other: dict[str, object], wins: str):
    view = raced(swarm(RACE), w1="cheap", w2="strong")
    both = [
        worker("w1", "completed", **one),  # pyright: ignore[reportArgumentType]
        worker("w2", "completed", **other),  # pyright: ignore[reportArgumentType]
    ]
    assert steps(view, both) == [SettleTask(task="r", state="completed", worker=wins)]


def test_one_that_cannot_begin_does_not_end_the_race():
    view = raced(swarm(RACE, verify=("true",)), w1="cheap", w2="strong")
    view = after(view, TaskRefused(task="r", worker="w1", failure=BROKEN))
    assert steps(view, [worker("w2")]) == []
    won = worker("w2", "completed", verified=True)
    assert steps(view, [won]) == [SettleTask(task="r", state="completed", worker="w2")]


def test_a_race_that_nobody_wins_has_failed():
    view = raced(swarm(RACE, verify=("true",)), w1="cheap", w2="strong")
    lost = [worker(name, "failed", failure=BROKEN) for name in ("w1", "w2")]
    (settled,) = steps(view, lost)
    assert isinstance(settled, SettleTask)
    assert settled.state == "failed"


def test_a_staged_race_asks_the_strong_one_only_if_the_cheap_one_is_refuted():
    view = swarm(STAGED, verify=("true",))
    assert steps(view) == [give("r", "cheap")]
    view = raced(view, w1="cheap")
    assert steps(view, [worker("w1")]) == []
    won = worker("w1", "completed", verified=True)
    assert steps(view, [won]) == [SettleTask(task="r", state="completed", worker="w1")]
    refuted = worker("w1", "failed", failure=Failure(kind="verify_failed", message=""))
    assert steps(view, [refuted]) == [give("r", "strong")]
    view = raced(view, w2="strong")
    last = worker("w2", "failed", failure=BROKEN)
    (settled,) = steps(view, [refuted, last])
    assert settled == SettleTask(task="r", state="failed", worker="w2", failure=BROKEN)


def test_a_racer_that_was_lost_runs_again():
    view = raced(swarm(RACE), w1="cheap", w2="strong")
    assert steps(view, [worker("w1")]) == [give("r", "strong")]
