"""Opening below a folder while somebody swaps links: by threads, as hard as it gets."""

import threading
from contextlib import suppress
from pathlib import Path

from tool_bench import names_in

from goent.agent.agent_ports import ToolMistake
from goent.agent.tools.session_files import (
    SessionPath,
    _store,  # pyright: ignore[reportPrivateUsage]
)

ROUNDS = 400


def test_a_link_that_comes_and_goes_never_leads_a_write_outside(tmp_path: Path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    (inside / "sub").mkdir(parents=True)
    outside.mkdir()
    (tmp_path / "link").symlink_to(outside)
    path = inside / "sub" / "file"
    place = SessionPath(path=path, client_path=path, name="sub/file", root=inside)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            with suppress(OSError):
                (inside / "sub").rename(tmp_path / "away")
                (tmp_path / "link").rename(inside / "sub")
                (inside / "sub").rename(tmp_path / "link")
                (tmp_path / "away").rename(inside / "sub")

    swapping = threading.Thread(target=swap)
    swapping.start()
    written = 0
    try:
        for _ in range(ROUNDS):
            with suppress(ToolMistake):
                _store(place, b"x")
                written += 1
    finally:
        over.set()
        swapping.join()
    assert names_in(outside) == []
    assert written
