"""A daemon of which only the swarm is there, and that as a test wants it."""

import os
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from held_lock import held_as_daemon
from msgspec import Raw, Struct

from goent import __version__
from goent.daemon.daemon_connection import PROTOCOL
from goent.domain.replies import AnswerReply, Progress, Question, Status
from goent.domain.swarm_messages import (
    MergePlan,
    SwarmLine,
    SwarmList,
    SwarmMergeReply,
    SwarmResult,
    SwarmStatus,
    TaskLine,
    Totals,
)
from goent.domain.types import PermissionOption, Usage
from goent.system.project_folders import project_key, runtime_dir

SWARM = "s-k3f9x"
BEGUN = "2026-11-16T08:00:00+00:00"
ALLOWED = PermissionOption(id="allow_once", label="Yes")
REFUSED = PermissionOption(id="reject", label="No")
QUESTION = Question(id="q1", tool="bash", detail="make test", options=(ALLOWED, REFUSED))


def task(name: str, state: str, **more: object) -> TaskLine:
    worker = None if state in ("pending", "blocked") else f"w-{name}"
    known = {"id": name, "state": state, "worker_id": worker, **more}
    return msgspec.convert(known, TaskLine, from_attributes=True)


def status(*tasks: TaskLine, state: str = "running", **more: object) -> SwarmStatus:
    known = {
        "swarm_id": SWARM,
        "swarm": "tidy-up",
        "state": state,
        "done": sum(one.state in ("completed", "failed", "cancelled", "blocked") for one in tasks),
        "total": len(tasks),
        "tasks": tasks,
        "cost_usd": 0.5,
        "budget_usd": 2.0,
        "started_at": BEGUN,
        "seconds": 65.0,
        **more,
    }
    return msgspec.convert(known, SwarmStatus, from_attributes=True)


def result(*tasks: TaskLine, state: str = "completed", **more: object) -> SwarmResult:
    known = {
        "swarm_id": SWARM,
        "swarm": "tidy-up",
        "state": state,
        "tasks": tasks,
        "totals": {"glm": Totals(workers=len(tasks), usage=Usage(input=1200), cost_usd=0.5)},
        "cost_usd": 0.5,
        "conflicts": (),
        "plan": MergePlan(order=tuple(one.id for one in tasks if one.state == "completed")),
        **more,
    }
    return msgspec.convert(known, SwarmResult, from_attributes=True)


def merged(*tasks: str, **more: object) -> SwarmMergeReply:
    known = {
        "swarm_id": SWARM,
        "branch": "go-ent/tidy-up/merged",
        "commit": "0123456789abcdef",
        "merged": tasks,
        "left": (),
        "conflicts": (),
        "verify": (),
        "evidence": None,
        **more,
    }
    return msgspec.convert(known, SwarmMergeReply, from_attributes=True)


class _Call(Struct):
    id: int
    method: str
    params: Raw


class _Refused(Exception):
    pass


class SwarmDaemon:
    """Tells one status after the other; the last one holds. `asked` is what it was asked."""

    def __init__(self, *statuses: SwarmStatus, result: SwarmResult | None = None) -> None:
        self.asked: list[tuple[str, dict[str, object]]] = []
        self.statuses = list(statuses)
        self.result = result
        self.merged: SwarmMergeReply | None = None
        self.swarms: tuple[SwarmLine, ...] = ()
        self.deaf_to_cancel = False
        self.question: Question | None = QUESTION
        self._clients: list[socket.socket] = []

    def dies(self) -> None:
        """Every connection ends, in the middle of whatever it is."""
        for client in self._clients:
            client.shutdown(socket.SHUT_RDWR)

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.asked)

    def params(self, method: str) -> dict[str, object]:
        return next(params for name, params in self.asked if name == method)

    def answer(self, call: _Call) -> object:
        params = msgspec.json.decode(call.params, type=dict[str, object])
        self.asked.append((call.method, params))
        handlers: dict[str, Callable[[], object]] = {
            "swarm_spawn": lambda: self.statuses[0],
            "swarm_retry": lambda: self.statuses[0],
            "swarm_wait": self._next,
            "swarm_status": self._next,
            "swarm_result": lambda: self.result,
            "swarm_cancel": self._cancelled,
            "swarm_merge": self._merge,
            "swarm_list": lambda: SwarmList(swarms=self.swarms),
            "worker_status": lambda: self._asking(str(params["worker_id"])),
            "worker_answer": self._answered,
        }
        return handlers[call.method]()

    def _next(self) -> SwarmStatus:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]

    def _cancelled(self) -> SwarmStatus:
        if not self.deaf_to_cancel:
            self.statuses = [
                msgspec.structs.replace(self.statuses[-1], state="cancelled"),
            ]
        return self.statuses[0]

    def _merge(self) -> SwarmMergeReply:
        if self.merged is None:
            raise _Refused("the checkout has uncommitted changes: commit or stash them")
        return self.merged

    def _asking(self, worker: str) -> Status:
        return Status(
            worker_id=worker,
            task="do it",
            cwd="/",
            state="waiting",
            open=True,
            turn=1,
            step="waiting",
            progress=Progress(percent=None, source=None),
            provider="glm",
            model="glm-4",
            method="acp",
            permission=self.question,
            questions=1,
            usage=Usage(),
            cost_usd=None,
            cost_source=None,
            started_at=BEGUN,
            updated_at=BEGUN,
            failure=None,
        )

    def _answered(self) -> AnswerReply:
        self.question = None
        self.statuses = self.statuses[-1:]
        return AnswerReply(state="running")

    @contextmanager
    def serving(self, project: Path) -> Generator["SwarmDaemon"]:
        """Where the command line looks for the project's daemon."""
        path = runtime_dir(project_key(project), os.environ) / "sock"
        with held_as_daemon(path.parent), socket.socket(socket.AF_UNIX) as listener:
            path.unlink(missing_ok=True)
            listener.bind(str(path))
            listener.listen()
            thread = threading.Thread(target=self._accept, args=(listener,), daemon=True)
            thread.start()
            try:
                yield self
            finally:
                listener.shutdown(socket.SHUT_RDWR)
                thread.join(5)
                path.unlink(missing_ok=True)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            self._clients.append(client)
            threading.Thread(target=self._converse, args=(client,), daemon=True).start()

    def _converse(self, client: socket.socket) -> None:
        hello = {"goent": PROTOCOL, "version": __version__, "pid": os.getpid()}
        with suppress(OSError), client, client.makefile("rwb") as stream:  # a person may leave
            stream.write(msgspec.json.encode(hello) + b"\n")
            stream.flush()
            stream.readline()
            for line in stream:
                call = msgspec.json.decode(line, type=_Call)
                reply: dict[str, object] = {"jsonrpc": "2.0", "id": call.id}
                try:
                    reply["result"] = self.answer(call)
                except _Refused as refused:
                    data = {"kind": "RequestError", "exit_code": 2}
                    reply["error"] = {"code": -32602, "message": str(refused), "data": data}
                stream.write(msgspec.json.encode(reply) + b"\n")
                stream.flush()
