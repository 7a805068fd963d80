"""When a process is given up, when it is worn, and how much work one slot takes."""

import os
import time
from pathlib import Path

import pytest
from sandboxed import a_sandbox

from goent.agents.process_vitals import GB, Vitals, read_vitals
from goent.opencode.driver import StartTime
from goent.opencode.process_care import CarePolicy
from goent.opencode.process_launch import OpenCodeLaunch
from goent.opencode.process_pool import MAX_SHARED_DIRECTORIES, ProcessSlot

LAUNCH = OpenCodeLaunch(
    program=Path("opencode"),
    cwd=Path("/"),
    env={"HOME": "/home/me"},
    password="p",
    token="t",
    fingerprint="f",
    start_timeout=1,
    sandbox=a_sandbox(Path("/home/me")),
)


def test_a_process_is_worn_by_memory_by_maps_and_by_age() -> None:
    care = CarePolicy()
    fine = Vitals(cpu=1, memory=2 * GB, maps=40_000)
    assert care.worn_reason(fine, 12 * 3600) == ""
    assert care.worn_reason(Vitals(cpu=1, memory=3 * GB), 0) == "3.0 GB of memory"
    assert care.worn_reason(Vitals(cpu=1, memory=1, maps=40_001), 0) == "40001 memory maps"
    assert care.worn_reason(fine, 13 * 3600) == "13.0 hours of age"


def test_a_silent_process_that_works_is_given_more_time() -> None:
    care = CarePolicy()
    assert [care.is_hung(n, at_work=False) for n in (2, 3)] == [False, True]
    assert [care.is_hung(n, at_work=True) for n in (3, 8, 9)] == [False, False, True]


def test_a_moment_stays_before_what_follows_when_the_clock_is_set() -> None:
    now, ticks = time.time(), time.monotonic()
    assert StartTime(now, ticks).earliest == pytest.approx(now, abs=1)
    set_back = StartTime(now + 3600, ticks)  # what follows is stamped with `now`
    assert set_back.earliest == pytest.approx(now, abs=1)
    set_forward = StartTime(now - 3600, ticks)  # what followed may have been stamped before
    assert set_forward.earliest == now - 3600


def test_a_process_is_seen_from_outside() -> None:
    before = read_vitals(os.getpid())
    ends = time.process_time() + 0.05
    while time.process_time() < ends:
        pass
    after = read_vitals(os.getpid())
    assert before and after
    assert after.cpu > before.cpu
    assert 1024**2 < after.memory < 4 * GB
    assert after.maps > 10
    assert read_vitals(2**22 + 1) is None


def test_a_slot_takes_a_bounded_number_of_directories_and_none_when_worn() -> None:
    slot = ProcessSlot(lambda: LAUNCH, dedicated=False)
    for n in range(MAX_SHARED_DIRECTORIES):
        assert slot.has_room
        slot.claim(Path(f"/projects/{n}"))
    assert not slot.has_room
    while slot.may_exceed_share:
        slot.claim(Path(f"/projects/{len(slot.directories)}"))
    assert len(slot.directories) == 20
    assert slot.suits("f")
    slot.worn_reason = "13.0 hours of age"
    assert not slot.suits("f")


@pytest.mark.parametrize(
    ("env", "folder"),
    [({"HOME": "/h"}, "/h/.local/share"), ({"HOME": "/h", "XDG_DATA_HOME": "/d"}, "/d")],
)
def test_the_database_is_where_opencode_keeps_it(env: dict[str, str], folder: str) -> None:
    launch = OpenCodeLaunch(
        program=LAUNCH.program,
        cwd=LAUNCH.cwd,
        env=env,
        password="p",
        token="t",
        fingerprint="f",
        start_timeout=1,
        sandbox=LAUNCH.sandbox,
    )
    assert launch.database == Path(folder, "opencode/opencode.db")
