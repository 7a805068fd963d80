"""What a go-ent that was killed had running is ended by its guard."""

import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from goent.proc import process_table
from goent.proc.child_process import GUARD_OWNER, all_guarded, guarded, supervised
from goent.proc.process_table import marked_processes, new_mark, new_owner

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(60)]

OWNER = """
import anyio, sys
from pathlib import Path
from goent.proc.process_table import new_mark, new_owner; from goent.proc.child_process import supervised
from goent.proc.child_process import all_guarded, guarded

async def main():
    mark = new_mark(new_owner("guard-test"))
    env = {"PATH": "/usr/bin:/bin"}
    command = ["/bin/sh", "-c", "setsid sleep 300 & echo $! $$; exec sleep 300"]
    async with GUARD, supervised(command, cwd=Path("/"), env=env, mark=mark) as child:
        sys.stdout.buffer.write(await child.stdout.receive())
        sys.stdout.flush()
        await anyio.sleep_forever()

anyio.run(main)
"""


async def gone(pids: list[int]) -> None:
    with anyio.fail_after(30):
        while any(process_table.start_time(pid) for pid in pids):  # noqa: ASYNC110 (a process announces nothing to strangers)
            await anyio.sleep(0.05)


@pytest.mark.spec("E14")
@pytest.mark.parametrize("guard", ["guarded(mark)", "all_guarded(mark.rpartition('/')[0])"])
async def test_a_killed_owner_leaves_nothing_running(guard: str) -> None:
    program = OWNER.replace("GUARD", guard)
    async with await anyio.open_process([sys.executable, "-c", program]) as owner:
        assert owner.stdout
        said = await owner.stdout.receive()
        pids = [int(pid) for pid in said.split()]
        assert all(process_table.start_time(pid) for pid in pids)
        os.kill(owner.pid, signal.SIGKILL)
        await gone(pids)


async def test_a_guard_goes_with_its_charge_and_touches_nobody_else() -> None:
    me = new_owner("guard-test")
    mark, other = new_mark(me), new_mark(me)
    command, env = ["/bin/sleep", "300"], {"PATH": "/usr/bin:/bin"}
    async with supervised(command, cwd=Path("/"), env=env, mark=other) as bystander:
        async with guarded(mark), supervised(command, cwd=Path("/"), env=env, mark=mark):
            assert len(set(marked_processes(me))) == 3
        assert set(marked_processes(me)) == {bystander.pid}


async def test_a_guard_of_all_goes_when_all_is_well_and_ends_nobody() -> None:
    me = new_owner("guard-test")
    command, env = ["/bin/sleep", "300"], {"PATH": "/usr/bin:/bin"}
    async with supervised(command, cwd=Path("/"), env=env, mark=new_mark(me)) as charge:
        async with all_guarded(me):
            assert len(set(marked_processes(new_owner(GUARD_OWNER)))) == 1
        assert set(marked_processes(me)) == {charge.pid}
    assert not set(marked_processes(new_owner(GUARD_OWNER)))
