"""Which port does a server have? The one that was asked for, if it can be had."""

from pathlib import Path

import anyio
import anyio.abc
import pytest
from eval_opencode import Evaluation, Heard, an_attempt, servers

from goent.evals.eval_ports import TargetError
from goent.opencode.opencode_process import free_port

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]


def listening(pids: set[int]) -> list[str]:
    """Their ports."""
    words = (Path(f"/proc/{pid}/cmdline").read_text().split("\0") for pid in pids)
    return [word.partition("=")[2] for line in words for word in line if word.startswith("--port=")]


async def test_the_port_that_was_asked_for_is_the_first_servers(
    shared: Evaluation, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goent.opencode.process_pool.MAX_SHARED_DIRECTORIES", 1)
    monkeypatch.setattr("goent.opencode.process_pool.MAX_DIRECTORIES", 1)
    before, port = servers(), free_port()
    target, seen = shared.target(port=port, env={"ONE": "1"}), list[str]()

    async def one(folder: Path) -> None:
        folder.mkdir()
        trace = await target.invoke(an_attempt(folder, "wait at the gate", limit=120), Heard())
        assert trace.answer == "I waited."

    async with anyio.create_task_group() as tasks:
        for name in ("a", "b"):
            tasks.start_soon(one, place / name)
        await shared.models.at_gate("door", 2, timeout=120)
        seen.extend(listening(servers() - before))
        shared.models.open_gate("door")
    assert len(set(seen)) == 2
    assert seen.count(str(port)) == 1
    other = shared.target(port=port, env={"ONE": "2"})
    with pytest.raises(TargetError, match=f"port {port} is that of another target's server"):
        await other.invoke(an_attempt(place / "a", "say hello"), Heard())


async def test_a_port_that_is_taken_is_named_with_what_to_do(shared: Evaluation, cwd: Path) -> None:
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        with pytest.raises(TargetError) as failed:
            await shared.attempt(cwd, "say hello", port=port)
    assert f"OpenCode cannot listen on port {port} of '127.0.0.1'" in str(failed.value)
    assert "Address already in use; end whoever listens there, or set another `port`" in str(
        failed.value
    )
