"""Does a running OpenCode still answer, and has it served long enough?"""

import time
from collections.abc import Callable

import anyio
from anyio import to_thread

from goent.drivers.opencode.hosted import Hosted
from goent.drivers.vitals import Care, Vitals, read_vitals

IDLE_CPU = 0.05  # CPU seconds between two looks that are no work


async def attend(process: Hosted, care: Callable[[], Care], worn: Callable[[str], None]) -> None:
    """Return when the process is gone. Once it should go, `worn` is told why, at every look."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_watch, process, care, worn)
        await process.gone.wait()
        tasks.cancel_scope.cancel()


async def _watch(process: Hosted, care: Callable[[], Care], worn: Callable[[str], None]) -> None:
    born = time.monotonic()
    misses, reason = 0, ""
    before: Vitals | None = None
    while True:
        terms = care()
        await anyio.sleep(terms.interval)
        answers = await process.inner.is_healthy(terms.patience)
        vitals = await to_thread.run_sync(read_vitals, process.pid)
        if vitals is None:
            continue  # it is ending
        misses = 0 if answers else misses + 1
        at_work = before is None or vitals.cpu - before.cpu > IDLE_CPU
        if terms.given_up(misses, at_work=at_work):
            process.give_up(f"did not answer {misses} times in a row and was ended")
            return
        if reason := reason or terms.worn(vitals, time.monotonic() - born):
            worn(reason)
        before = vitals
