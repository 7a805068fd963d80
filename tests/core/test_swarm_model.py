"""Whatever the tasks, the outcomes and the crashes: a swarm ends, and each task ends once."""

from dataclasses import dataclass, field

from hypothesis import given as drawn
from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace
from swarm_views import DIED, after, steps, swarm, worker

from goent.domain.events import SwarmCancelled, TaskGiven, TaskRefused, TaskSettled
from goent.domain.swarm_messages import SwarmTask
from goent.domain.types import Failure
from goent.swarms.swarm_steps import GiveTask, ResumeWorker, SettleTask, StopWorker
from goent.workers.views import SwarmView, WorkerView

BROKEN = Failure(kind="provider_down", message="", retryable=True)
MOST_ROUNDS = 500


@dataclass
class World:
    view: SwarmView
    data: st.DataObject
    workers: dict[str, WorkerView] = field(default_factory=dict[str, WorkerView])
    beginning: set[str] = field(default_factory=set[str])
    crashes: int = 2

    def round(self) -> bool:
        """Take every step, then let something happen; whether there was anything to do."""
        found = steps(self.view, list(self.workers.values()), list(self.beginning))
        for step in found:
            match step:
                case GiveTask():
                    self._give(step)
                case SettleTask():
                    assert self.view.tasks[step.task].settled is None, "each task ends once"
                    settled = TaskSettled(
                        task=step.task, state=step.state, worker=step.worker, failure=step.failure
                    )
                    self.view = after(self.view, settled)
                case StopWorker():
                    self._change(step.worker, state="cancelled")
                case ResumeWorker():
                    self._change(step.worker, state="running", failure=None)
        busy = len(self.beginning) + sum(w.state == "running" for w in self.workers.values())
        assert busy <= self.view.spawned.concurrency
        return bool(found)

    def _give(self, step: GiveTask) -> None:
        task = self.view.tasks[step.task].task
        for before in task.after:
            settled = self.view.tasks[before].settled
            assert settled
            assert settled.state == "completed"
        name = f"w{sum(len(t.workers) for t in self.view.tasks.values())}"
        self.view = after(self.view, TaskGiven(task=task.id, worker=name, pin=step.pin))
        self.beginning.add(name)

    def happen(self) -> None:
        """A worker begins, is refused, or ends; or go-ent dies with all that was under way."""
        running = [w.id for w in self.workers.values() if w.state == "running"]
        events = [f"begin {w}" for w in sorted(self.beginning)] + [f"end {w}" for w in running]
        if self.crashes:
            events.append("crash")
        what, _, who = self.data.draw(st.sampled_from(events or ["nothing"])).partition(" ")
        if what == "begin":
            self.beginning.discard(who)
            if self.data.draw(st.integers(0, 9)) == 0:
                task = next(t for t in self.view.tasks.values() if who in t.workers).task.id
                self.view = after(self.view, TaskRefused(task=task, worker=who, failure=BROKEN))
            else:
                self.workers[who] = worker(who)
        elif what == "end":
            state = self.data.draw(st.sampled_from(["completed", "completed", "failed"]))
            failure = BROKEN if state == "failed" else None
            self._change(who, state=state, failure=failure)
        elif what == "crash":
            self.crashes -= 1
            self.beginning.clear()
            for name in running:
                token = self.data.draw(st.sampled_from(["", "ses_1"]))
                self._change(name, state="failed", failure=DIED, token=token, open=bool(token))

    def _change(self, name: str, **changes: object) -> None:
        if name in self.workers:
            self.workers[name] = replace(self.workers[name], **changes)
        self.beginning.discard(name)


def tasks(data: st.DataObject) -> list[SwarmTask]:
    found: list[SwarmTask] = []
    for number in range(data.draw(st.integers(1, 6))):
        names = [task.id for task in found]
        found.append(
            SwarmTask(
                id=f"t{number}",
                prompt="do it",
                after=tuple(data.draw(st.lists(st.sampled_from(names), unique=True)))
                if names
                else (),
                race=data.draw(st.sampled_from([(), (), ("cheap", "strong")])),
            )
        )
        if found[-1].race and data.draw(st.booleans()):
            found[-1] = replace(found[-1], staged=True)
    return found


@settings(max_examples=150, deadline=None)
@drawn(st.data())
def test_a_swarm_ends_whatever_happens(data: st.DataObject):
    view = swarm(
        *tasks(data), concurrency=data.draw(st.integers(1, 4)), retries=data.draw(st.integers(0, 2))
    )
    world = World(view, data)
    cancelled_at = data.draw(st.integers(0, 60))
    for number in range(MOST_ROUNDS):
        if number == cancelled_at:
            world.view = after(world.view, SwarmCancelled(reason="enough"))
        if not world.round():
            if world.view.over:
                break
            world.happen()
    assert world.view.over
    assert not [w for w in world.workers.values() if w.state == "running"]
