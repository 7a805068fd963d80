"""A project whose scripted workers act in their own folders, and what is asked of its swarms."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from scripted_project import CODER, GLM, Project

from goent.domain.events import ToolCall
from goent.domain.ports import WorkerSpec
from goent.domain.swarm_messages import SwarmMergeReply, SwarmResult, SwarmStatus, TaskLine
from goent.domain.types import FileChange
from goent.testing.driver import ScriptedDriver, ScriptedMove, ScriptedSession, say

KIMI = type(GLM)(name="kimi", backend="moonshot", model="kimi-k2", price=GLM.price)
THREE = (GLM, KIMI, CODER)
Act = Callable[[str, WorkerSpec], Sequence[ScriptedMove]]


class Acting(ScriptedDriver):
    """Each worker acts by its own prompt, in its own folder, as its own provider."""

    def __init__(self, act: Act | None = None) -> None:
        super().__init__(lambda _: ())
        self._act = act or write

    @asynccontextmanager
    async def open(self, spec: WorkerSpec) -> AsyncGenerator[ScriptedSession]:
        self.opened.append(spec)
        try:
            yield ScriptedSession(self, spec, lambda prompt: self._act(prompt.text, spec))
        finally:
            self.closed.append(spec.id)


def write(prompt: str, spec: WorkerSpec) -> Sequence[ScriptedMove]:
    """`NAME: TEXT` writes a file; what is after a second colon is appended from another."""
    name, _, text = prompt.partition(": ")
    (spec.cwd / name).write_text(text + "\n")
    return tool(name)


def tool(name: str) -> Sequence[ScriptedMove]:
    change = FileChange(path=name, added=1, removed=0)
    return [ToolCall(id="t1", tool="write", status="completed", changes=(change,)), say("done")]


def task(name: str, prompt: str, **more: object) -> dict[str, Any]:
    return {"id": name, "prompt": prompt, **more}


async def over(project: Project, *tasks: dict[str, Any], **more: object) -> SwarmResult:
    """Hand over the tasks, wait for the end, and have the whole result."""
    begun = await project.ask("swarm_spawn", tasks=tasks, **more)
    assert isinstance(begun, SwarmStatus)
    return await ended(project, begun.swarm_id)


async def ended(project: Project, swarm: str) -> SwarmResult:
    status = await project.ask("swarm_wait", swarm_id=swarm, timeout_s=60)
    assert isinstance(status, SwarmStatus)
    assert status.done == status.total, status
    result = await project.ask("swarm_result", swarm_id=swarm, whole=True)
    assert isinstance(result, SwarmResult)
    return result


async def merge(project: Project, swarm: str, **more: object) -> SwarmMergeReply:
    merged = await project.ask("swarm_merge", swarm_id=swarm, **more)
    assert isinstance(merged, SwarmMergeReply)
    return merged


def line(result: SwarmResult | SwarmStatus, name: str) -> TaskLine:
    return next(each for each in result.tasks if each.id == name)
