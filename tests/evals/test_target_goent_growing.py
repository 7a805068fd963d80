"""What a worker says is told while it grows: now and then, and all of it however it ends. Its daemon is scripted."""

import shutil
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest
from eval_stage import AttemptWitness, attempt_at

from goent.domain.events import AnyEvent, EventEnvelope, TextDelta, ToolCall, TurnEnded, TurnStarted
from goent.domain.types import Value
from goent.evals.eval_ports import DaemonRefused, R
from goent.evals.suites import TargetSpec
from goent.evals.targets.goent_attempt import GoentAttempt
from goent.evals.targets.goent_target import GoentTarget, folder_copies
from goent.evals.traces import TracedMessage

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

STARTED = TurnStarted(turn=1, prompt="x")
WORDS = [TextDelta(text=f"{number} ", message="1") for number in range(3000)]
SAID = "".join(word.text for word in WORDS).strip()


class Telling:
    """The port `Daemon`: tells these events at once, and no more until it is cut off."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self._events = events
        self.told = anyio.Event()

    async def ask(self, operation: str, request: Value, reply: type[R]) -> R:
        raise DaemonRefused("it was closed already")

    @asynccontextmanager
    async def events(self, worker: str) -> AsyncGenerator[AsyncIterator[EventEnvelope]]:
        yield self._all()

    async def _all(self) -> AsyncIterator[EventEnvelope]:
        for at, event in enumerate(self._events):
            yield EventEnvelope(seq=at + 1, at=float(at), worker="w", event=event)
        self.told.set()
        await anyio.sleep_forever()


class Counting(AttemptWitness):
    """Also in which order it was told what."""

    def __init__(self) -> None:
        super().__init__()
        self.tellings: list[TracedMessage] = []
        self.heard = anyio.Event()

    def message(self, number: int, message: TracedMessage, *, before: int | None = None) -> None:
        super().message(number, message, before=before)
        self.tellings.append(message)
        self.heard.set()


def working(daemon: Telling, witness: Counting) -> GoentAttempt:
    return GoentAttempt(daemon, lambda: nullcontext(daemon), "reject", witness)


async def test_a_long_answer_is_not_told_anew_with_each_word() -> None:
    witness = Counting()
    ended = Telling([STARTED, *WORDS, TurnEnded(turn=1, state="completed")])
    await working(ended, witness).follow_turn("w")
    assert witness.messages[0].content == SAID
    assert len(witness.tellings) <= 5, "not 3,000 times"


async def test_a_tool_call_is_told_when_it_is_over() -> None:
    witness = Counting()
    call = ToolCall(id="a", tool="read", status="completed")
    daemon = Telling([STARTED, TextDelta(text="I look.", message="1"), call])
    async with anyio.create_task_group() as group:
        group.start_soon(working(daemon, witness).follow_turn, "w")
        await daemon.told.wait()
        (told,) = witness.tellings
        assert (told.content, [call.tool for call in told.tool_calls]) == ("I look.", ["read"])
        group.cancel_scope.cancel()


async def test_what_was_said_before_a_silence_is_told_in_it() -> None:
    witness = Counting()
    async with anyio.create_task_group() as group:
        group.start_soon(working(Telling([STARTED, *WORDS]), witness).follow_turn, "w")
        await witness.heard.wait()
        assert witness.messages[0].content == SAID
        group.cancel_scope.cancel()


async def test_a_time_out_of_something_else_is_not_the_workers(tmp_path: Path) -> None:
    class Unreachable(Telling):
        async def ask(self, operation: str, request: Value, reply: type[R]) -> R:
            raise TimeoutError("the connection timed out")

    daemon = Unreachable([])
    worker = GoentTarget(TargetSpec(name="w", kind="goent"), lambda: nullcontext(daemon))
    with pytest.raises(TimeoutError, match="the connection"):
        await worker.invoke(attempt_at("x", tmp_path), AttemptWitness())


async def test_the_copies_of_a_race_are_removed_while_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really, removing = shutil.rmtree, list[int]()

    def rmtree(*arguments: Any, **options: Any) -> None:
        removing.append(threading.get_ident())
        really(*arguments, **options)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.txt").touch()
    (tmp_path / "scratch").mkdir()
    async with (
        anyio.create_task_group() as group,
        folder_copies(tmp_path / "work", 2, tmp_path / "scratch") as made,
    ):
        assert [(copy / "a.txt").exists() for copy in made] == [True, True]
        group.cancel_scope.cancel()
    assert list((tmp_path / "scratch").iterdir()) == []
    assert removing and threading.get_ident() not in removing


async def test_nothing_is_lost_of_a_worker_that_is_cut_off() -> None:
    witness = Counting()
    daemon = Telling([STARTED, *WORDS])
    async with anyio.create_task_group() as group:
        group.start_soon(working(daemon, witness).follow_turn, "w")
        await daemon.told.wait()
        group.cancel_scope.cancel()
    assert witness.messages[0].content == SAID
