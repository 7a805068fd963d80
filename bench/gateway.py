"""What does the way through the gateway cost a model call: CPU time, the first byte, the pace?

Source, client and proxy are processes of their own, and only the proxy's CPU time is counted.
"""

import statistics
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream
from bench import peer_proxy
from bench.cost import Cost, Failed, cpu_ever, resident, whole_run
from bench.installing import NotInstalled
from bench.place import Place
from bench.stream_client import Door, Heard, Order, Pace
from bench.table import Row

CHUNKS = Order(doors=(), pace=Pace(chunks=500, per_s=50), at_once=20)
FIRST_BYTE = Order(doors=(), pace=Pace(chunks=3), times=200, prompt="Say the time. " * 2000)
MANY = Order(doors=(), pace=Pace(chunks=2000, per_s=100), at_once=50)
WARM = Order(doors=(), pace=Pace(chunks=20), times=3)
EARLY, LATE = 0.3, 0.9  # of the many streams' time
WAVES = 3  # of many streams; memory is compared after the first, which warms up
READY_S = 30.0
IMPORTS = 7
NO_PRICES = "import sys, goent.api.driver; sys.exit('genai_prices' in sys.modules)"


async def run(place: Place) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="goent-bench-") as folder:
        async with (
            _served("bench.stream_source") as (_, source),
            _served("bench.stream_ours", source.url, folder) as (gateway, ours),
        ):
            return [
                await _per_chunk(gateway, ours, source, Path(folder)),
                await _first_byte(source, ours),
                *await _many(gateway, ours),
                await anyio.to_thread.run_sync(_api_import, place),
            ]


async def _per_chunk(gateway: int, ours: Door, source: Door, folder: Path) -> Row:
    mine = await _cpu_per_chunk(gateway, ours)
    measure, unit = "gateway: CPU per streamed chunk", "µs"
    try:
        await peer_proxy.installed()
    except NotInstalled as error:
        why = f"LiteLLM {peer_proxy.VERSION} could not be installed: {error}"
        return Row(measure=f"{measure} ({why})", unit=unit, ours=mine * 1e6)
    async with peer_proxy.litellm(source, CHUNKS.pace, folder / "litellm") as (pid, door):
        theirs = await _cpu_per_chunk(pid, door)
    return Row(
        measure=measure,
        unit=unit,
        ours=mine * 1e6,
        peer=theirs * 1e6,
        peer_name=f"LiteLLM proxy {peer_proxy.VERSION}",
        at_most=0.2,
    )


async def _cpu_per_chunk(pid: int, door: Door) -> float:
    await _heard(msgspec.structs.replace(CHUNKS, at_once=2), door)
    before = cpu_ever(pid)
    heard = await _heard(CHUNKS, door)
    return (cpu_ever(pid) - before) / sum(stream.chunks for stream in heard)


async def _first_byte(direct: Door, through: Door) -> Row:
    """Calls in turns, on connections that are kept, with a prompt of 28 kB."""
    await _heard(WARM, direct, through)
    heard = await _heard(FIRST_BYTE, direct, through)
    waits = [
        statistics.median(each.first - each.asked for each in heard if each.door == number)
        for number in (0, 1)
    ]
    return Row(
        measure="gateway: added to the time to the first byte, p50",
        unit="ms",
        ours=(waits[1] - waits[0]) * 1000,
        at_most=5,
    )


async def _many(gateway: int, door: Door) -> list[Row]:
    """Waves of many streams. What a stream has said is kept until it ends, so memory grows within
    a wave, by what is said in it; from wave to wave it must not.
    """
    waves = [await _wave(gateway, door) for _ in range(WAVES)]
    slowest = max((stream for wave in waves for stream in wave.heard), key=_slowed)
    first, *_, before, last = waves
    name = f"gateway: {MANY.at_once} streams at once, {MANY.pace.per_s} chunks/s each"
    return [
        Row(
            measure=f"{name}: the slowest, first chunk to last",
            unit="s",
            ours=slowest.last - slowest.first,
            peer=slowest.born_last - slowest.born_first,
            peer_name="its source",
            at_most=1.01,
        ),
        Row(
            measure=f"{name}: memory (RSS) at {LATE:.0%} of wave {WAVES}",
            unit="MB",
            ours=last.late / 1e6,
            peer=before.late / 1e6,
            peer_name=f"at {LATE:.0%} of wave {WAVES - 1}",
            at_most=1.05,
        ),
        Row(
            measure=f"{name}: memory (RSS) at {LATE:.0%} of the first wave",
            unit="MB",
            ours=first.late / 1e6,
            peer=first.early / 1e6,
            peer_name=f"at {EARLY:.0%}, warming up",
        ),
    ]


class _Wave(NamedTuple):
    heard: Sequence[Heard]
    early: int
    late: int


async def _wave(gateway: int, door: Door) -> _Wave:
    seconds = MANY.pace.chunks / MANY.pace.per_s
    memory: list[int] = []
    heard: Sequence[Heard] = ()

    async def watch() -> None:
        began = anyio.current_time()
        for share in (EARLY, LATE):
            await anyio.sleep_until(began + share * seconds)
            memory.append(resident(gateway))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        heard = await _heard(MANY, door)
    early, late = memory
    return _Wave(heard, early, late)


def _slowed(stream: Heard) -> float:
    return (stream.last - stream.first) / (stream.born_last - stream.born_first)


def _api_import(place: Place) -> Row:
    """The whole interpreter's time; the price list must not be among what it loads."""
    command = [sys.executable, "-c", NO_PRICES]

    def once() -> Cost:
        return whole_run(command, cwd=place.project, env=place.env)

    once()
    return Row(
        measure="the API method imported, prices not: CPU",
        unit="ms",
        ours=statistics.median(once().cpu for _ in range(IMPORTS)) * 1000,
        at_most=250,
    )


async def _heard(order: Order, *doors: Door) -> Sequence[Heard]:
    order = msgspec.structs.replace(order, doors=doors)
    client = [sys.executable, "-m", "bench.stream_client"]
    try:
        done = await anyio.run_process(client, input=msgspec.json.encode(order))
    except subprocess.CalledProcessError as error:
        said: bytes = error.stderr
        raise Failed(f"the streams did not come whole: {said.decode()[-2000:]}") from error
    return msgspec.json.decode(done.stdout, type=list[Heard])


@asynccontextmanager
async def _served(module: str, *arguments: str) -> AsyncGenerator[tuple[int, Door]]:
    """A server's process id and door; it ends when its stdin does."""
    command = [sys.executable, "-m", module, *arguments]
    async with await anyio.open_process(command, stderr=None) as process:
        assert process.stdin and process.stdout
        try:
            with anyio.fail_after(READY_S):
                told = BufferedByteReceiveStream(process.stdout)
                line = await told.receive_until(b"\n", 4096)
            yield process.pid, msgspec.json.decode(line, type=Door)
        finally:
            await process.stdin.aclose()
            with anyio.move_on_after(READY_S, shield=True):
                await process.wait()
