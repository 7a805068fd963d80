"""The daemon's socket, as the command line speaks on it: hellos and requests gone bad."""

import anyio
import msgspec
import pytest
from fuzzed_daemon import FuzzedDaemon, assert_clear, request, to_the_end
from mutation import TOKENS, mutated, rounds

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

HELLOS = [
    b'{"goent":1,"version":"0.1.0","kind":"control","cwd":"/tmp","env":{"A_KEY":"x"}}\n',
    b'{"goent":1,"kind":"mcp","cwd":"/"}\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n',
    b'{"goent":1,"kind":"http"}\n{"port":0}\n',
]
REQUESTS = [
    request(1, "daemon_status"),
    request(2, "worker_list", limit=5, state="running"),
    request(3, "worker_status", worker_id="w-1"),
    request(4, "worker_output", worker_id="w-1", cursor=0, limit=100, mode="text"),
    request(5, "worker_wait", worker_ids=["w-1"], timeout_s=0.1, mode="any"),
    request(6, "worker_prompt", worker_id="w-1", prompt="go on", files=["a.py"]),
    request(7, "worker_answer", worker_id="w-1", permission_id="p", option="allow_once"),
    request(8, "worker_result", worker_id="w-1"),
    request(9, "worker_cancel", worker_id="w-1", reason="x"),
    request(10, "provider_list"),
    request(11, "cost_report", by="provider"),
    request(12, "watch", worker_ids=["w-1"], after=0),
    request(13, "worker_spawn", task="t", provider="nobody", budget_usd=1, timeout_s=5),
    b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":12}}',
    b'{"jsonrpc":"2.0","id":1,"result":{}}',
    b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}',
]


@pytest.mark.spec("A03")
async def test_no_request_that_went_bad_stops_the_next_one(daemon: FuzzedDaemon) -> None:
    before = daemon.memory()
    for chance in rounds("control"):
        async with daemon.connection("control") as line:
            await line.say(*(mutated(REQUESTS, chance) for _ in range(12)))
            assert_clear(await line.ask("good", "daemon_status"))
    await daemon.is_well()
    assert daemon.memory() - before < 64 << 20


async def test_no_parameters_are_a_fault_of_go_ents_own(daemon: FuzzedDaemon) -> None:
    bad = b'{"jsonrpc":"2.0","id":1,"method":"worker_status","params":%b}'
    async with daemon.connection("control") as line:
        for token in TOKENS:
            for params in (b"%b", b"[%b]", b'{"worker_id":%b}', b'{"worker_id":"%b"}', b'{"%b":1}'):
                await line.say(bad % (params % token))
            assert_clear(await line.ask("good", "daemon_status"))
    await daemon.is_well()


async def test_no_hello_that_went_bad_keeps_others_out(daemon: FuzzedDaemon) -> None:
    for chance in rounds("hello"):
        async with await daemon.raw() as stream:
            await stream.send(mutated(HELLOS, chance))
            said = await to_the_end(stream)
        greeting, _, answer = said.partition(b"\n")
        assert msgspec.json.decode(greeting, type=dict[str, object])["goent"] == 1
        if answer.startswith(b'{"error"'):
            assert b"hello" in answer or b"protocol" in answer
    await daemon.is_well()


@pytest.mark.parametrize("hello", [b'{"\xff":1}', b"[" * 9000, b"1", b'{"goent":2}'])
async def test_what_is_wrong_with_a_hello_is_said(daemon: FuzzedDaemon, hello: bytes) -> None:
    async with await daemon.raw() as stream:
        await stream.send(hello + b"\n")
        _, _, answer = (await to_the_end(stream)).partition(b"\n")
    assert b"not a hello" in answer or b"protocol 2" in answer
    await daemon.is_well()


async def test_whoever_leaves_in_the_middle_leaves_nothing(daemon: FuzzedDaemon) -> None:
    for chance in rounds("leaving"):
        async with daemon.connection("control") as line:
            await line.say(*(chance.choice(REQUESTS) for _ in range(3)))
            await line._send.send(mutated(REQUESTS, chance)[:40])  # pyright: ignore[reportPrivateUsage] (a line without an end)
    await daemon.is_well()


@pytest.mark.spec("A03")
async def test_a_line_without_an_end_is_not_kept(daemon: FuzzedDaemon) -> None:
    before = daemon.memory()
    most = before
    async with daemon.connection("control") as line:
        for _ in range(10):
            await line._send.send(b"x" * (16 << 20))  # pyright: ignore[reportPrivateUsage] (a line without an end)
            most = max(most, daemon.memory())
        await line.say(b"")
        (refused,) = [await line.hear()]
        assert "at most 67108864 bytes" in refused["error"]["message"]
        assert_clear(await line.ask("good", "daemon_status"))
    assert most - before < 120 << 20
    await daemon.is_well()


async def test_many_who_say_nothing_keep_nobody_out(daemon: FuzzedDaemon) -> None:
    async with anyio.create_task_group() as tasks:

        async def linger() -> None:
            async with await daemon.raw():
                await anyio.sleep_forever()

        for _ in range(50):
            tasks.start_soon(linger)
        await daemon.is_well()
        tasks.cancel_scope.cancel()
