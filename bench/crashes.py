"""What is left, lost or repeated when the daemon or OpenCode is killed in the middle of work?

A round: some workers, a client that watches them, and `kill -9` at a moment of the round's own
choosing. It is a good one if no process that carries a mark of the dead is left, every event that
the client was told is in the journal as it was told, every turn ended once, and no prompt was sent
twice. After the death of OpenCode the workers must even have finished.
"""

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import anyio
from bench.client import Client, a_client, journal, mark_of
from bench.cost import PATIENCE
from bench.place import WORK, Place
from bench.table import Row

from goent.domain.events import EventEnvelope, TurnEnded, TurnStarted
from goent.proc.process_table import marked_processes
from goent.testing.scripted_calls import Call

ROUNDS = 50
WORKERS = 3
CALLS = 5  # of the nine that the workers make: the kill comes after one of these
JITTER_S = 0.2
SWEEP_S = 15.0

Round = Callable[[Place, int], Awaitable[list[str]]]


async def run(place: Place, *, rounds: int = ROUNDS) -> list[Row]:
    return [
        Row(
            measure=f"`kill -9` of {victim} in mid-work: nothing left, lost or repeated",
            unit=f"of {rounds} rounds",
            ours=await _good_rounds(place, victim, one_round, rounds),
            at_least=rounds,
        )
        for victim, one_round in (("the daemon", _daemon_dies), ("OpenCode", _opencode_dies))
    ]


async def _good_rounds(place: Place, victim: str, one_round: Round, rounds: int) -> int:
    good = 0
    for number in range(1, rounds + 1):
        faults = await one_round(place, number)
        good += not faults
        for fault in faults:
            sys.stderr.write(f"\n`kill -9` of {victim}, round {number}: {fault}\n")
    return good


async def _daemon_dies(place: Place, number: int) -> list[str]:
    begin = await _end_of_journal(place)
    tags = _tags("daemon", number)
    async with a_client(place, after=begin) as client:
        workers = await _work(place, client, tags, random.Random(number))
        os.kill(client.pid, signal.SIGKILL)
        await anyio.sleep(0.05)  # what was on its way to the client still arrives
        told = list(client.seen)
    async with a_client(place, after=begin) as again:
        left = client.processes()
        await again.close(workers)
    return [
        *([f"{len(left)} processes are left"] if left else []),
        *_faults(place, told, await journal(place, after=begin), tags),
    ]


async def _opencode_dies(place: Place, number: int) -> list[str]:
    begin = await _end_of_journal(place)
    tags = _tags("OpenCode", number)
    async with a_client(place, after=begin) as client:
        workers = await _work(place, client, tags, random.Random(number))
        victims = client.opencodes()
        marks = [mark_of(pid) for pid in victims]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        unfinished = [
            status.failure.message if status.failure else status.state
            for status in await client.ended(workers)
            if status.state != "completed"
        ]
        left = await _left(marks)
        await client.close(workers)
        told = list(client.seen)
    return [
        *([f"{len(left)} processes are left"] if left else []),
        *([f"workers did not finish: {', '.join(unfinished)}"] if unfinished else []),
        *_faults(place, told, await journal(place, after=begin), tags),
    ]


async def _work(
    place: Place, client: Client, tags: Sequence[str], chance: random.Random
) -> list[str]:
    """Begin it; returns in the middle."""
    before = len(place.models.calls)
    workers = [await client.spawn(f"{WORK} {tag}") for tag in tags]
    await place.models.called(before + chance.randint(1, CALLS), timeout=PATIENCE)
    await anyio.sleep(chance.uniform(0, JITTER_S))
    return workers


async def _left(marks: Sequence[str]) -> set[int]:
    """Who still carries one of the marks when the sweep has had its time."""
    left: set[int] = set()
    with anyio.move_on_after(SWEEP_S):
        while left := {pid for mark in marks for pid in marked_processes(mark)}:  # noqa: ASYNC110 (a process announces nothing)
            await anyio.sleep(0.1)
    return left


def _faults(
    place: Place,
    told: Sequence[EventEnvelope],
    written: Sequence[EventEnvelope],
    tags: Sequence[str],
) -> list[str]:
    kept = {envelope.seq: envelope for envelope in written}
    lost = [envelope for envelope in told if kept.get(envelope.seq) != envelope]
    faults = [f"the journal does not have {lost[0]!r}"] if lost else []
    begun = Counter(e.worker for e in written if isinstance(e.event, TurnStarted))
    ended = Counter(e.worker for e in written if isinstance(e.event, TurnEnded))
    if begun != ended or len(begun) > len(tags):
        faults.append(f"turns began {dict(begun)} and ended {dict(ended)}")
    return faults + [f"{tag!r} was sent twice" for tag in tags if _was_repeated(place, tag)]


def _was_repeated(place: Place, tag: str) -> bool:
    sessions: set[str | None] = set()
    for call in place.models.calls:
        times = _times_asked(call, tag)
        if times > 1:
            return True
        if times:
            sessions.add(call.session)
    return len(sessions) > 1


def _times_asked(call: Call, tag: str) -> int:
    messages = call.request.messages if call.request else ()
    return sum(message.role == "user" and tag in message.text for message in messages)


def _tags(victim: str, number: int) -> list[str]:
    return [f"<{victim} {number}.{n}>" for n in range(1, WORKERS + 1)]


async def _end_of_journal(place: Place) -> int:
    written = await journal(place)
    return written[-1].seq if written else 0
