"""No answer and no request takes more memory than go-ent is ready to give it."""

import gzip
import resource

import anyio
import httpx2
import pytest
from fake_provider import Script, openai_pieces
from gateway_world import World, told

from goent.gateway import asgi, gateway
from goent.providers import upstream
from goent.providers.gateway_errors import unmask_retry_words

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

MEGABYTE = b"x" * (1024 * 1024)
STREAM = b'{"model":"glm-4.7","stream":true,"messages":[]}'
PLAIN = b'{"model":"glm-4.7","messages":[]}'


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


async def _models(world: World) -> httpx2.Response:
    return await world.client.get(world.url("models"), headers=world.headers())


async def test_a_list_of_models_without_an_end_is_a_clean_failure(world: World):
    world.provider.script = Script([MEGABYTE] * 1200, content_type="application/json")
    before = _peak()
    answer = await _models(world)
    assert answer.status_code == 502
    assert "backend 'glm'" in told(answer)
    assert f"more than {gateway.MAX_FREE_ANSWER} bytes" in told(answer)
    assert _peak() - before < 100_000_000


async def test_a_count_of_tokens_is_bounded_as_well(world: World):
    world.provider.script = Script([MEGABYTE] * 40, content_type="application/json")
    url = world.url("messages/count_tokens", "anth")
    answer = await world.client.post(url, content=PLAIN, headers=world.headers())
    assert answer.status_code == 502


async def test_a_list_of_models_that_does_not_end_in_time_is_given_up(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gateway, "FREE_ANSWER_S", 0.3)
    world.provider.script = Script([b"{", b"}"], content_type="application/json", waits=1)
    answer = await _models(world)
    assert answer.status_code == 502
    assert "within 0.3 s" in told(answer)


async def test_a_compressed_answer_is_not_unpacked(world: World):
    bomb = gzip.compress(MEGABYTE * 200)
    headers = {"content-encoding": "gzip"}
    world.provider.script = Script([bomb], content_type="application/json", headers=headers)
    before = _peak()
    answer = await _models(world)
    assert answer.content == bomb
    assert _peak() - before < 100_000_000


async def test_an_answer_that_was_not_to_be_streamed_is_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(upstream, "MOST_ANSWER", 1024 * 1024)
    world.provider.script = Script([MEGABYTE, b"x"], content_type="application/json")
    answer = await world.client.post(world.url(), content=PLAIN, headers=world.headers())
    assert answer.status_code == 424, "OpenCode would ask again after a 502"
    assert "more than 1048576 bytes" in told(answer)


async def test_a_stream_without_an_end_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(upstream, "MOST_ANSWER", 1024 * 1024)
    world.provider.script = Script(openai_pieces("x" * 1000)[:1] * 2000)
    answer = await world.client.post(world.url(), content=STREAM, headers=world.headers())
    assert "more than 1048576 bytes" in http_words(answer)
    assert len(answer.content) < 2 * 1024 * 1024


async def test_tool_calls_in_endless_pieces_are_bounded(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(upstream, "MOST_PIECES", 100)
    call = (
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c","function":'
        b'{"name":"write","arguments":" "}}]}}]}\n\n'
    )
    world.provider.script = Script([call] * 200)
    answer = await world.client.post(world.url(), content=STREAM, headers=world.headers())
    assert "more than 100 pieces" in http_words(answer)


async def test_one_event_is_bounded_and_the_limit_is_named(world: World):
    world.provider.script = Script([b"data: ", *[MEGABYTE] * 17, b"\n\n"])
    answer = await world.client.post(world.url(), content=STREAM, headers=world.headers())
    assert "an event of more than 16777216 bytes" in http_words(answer)


async def test_an_endless_error_is_read_no_further_than_needed(world: World):
    world.provider.script = Script([MEGABYTE] * 500, status=400)
    with anyio.fail_after(5):
        answer = await world.client.post(world.url(), content=STREAM, headers=world.headers())
    assert answer.status_code == 400


async def test_a_request_that_is_too_long_is_refused_by_name(world: World):
    async def body():
        for _ in range(65):
            yield MEGABYTE

    with anyio.fail_after(30):
        try:
            answer = await world.client.post(world.url(), content=body(), headers=world.headers())
        except httpx2.WriteError:
            return  # it was refused while it was being sent
    assert answer.status_code == 413
    assert f"longer than {asgi.MAX_BODY} bytes" in told(answer)


async def test_all_requests_together_are_bounded_and_give_their_memory_back(world: World):
    memory = world.upstream.connections.memory
    memory.limit = 3 * 1024 * 1024
    world.provider.script = script = Script(openai_pieces(), waits=1)
    long = b'{"model":"glm-4.7","stream":true,"messages":[],"x":"' + MEGABYTE * 2 + b'"}'
    async with world.client.stream("POST", world.url(), content=long, headers=world.headers()):
        await script.reached.wait()
        second = await world.client.post(world.url(), content=long, headers=world.headers())
        assert second.status_code == 429
        assert f"at most {memory.limit}" in told(second)
        script.go_on.set()
    await world.gateway.settle("w1")
    with anyio.fail_after(10):
        while memory.used:  # noqa: ASYNC110 (the end of a request announces nothing)
            await anyio.sleep(0.01)


def http_words(answer: httpx2.Response) -> str:
    """Of a stream that fails, whether it has begun or not."""
    return unmask_retry_words(answer.text)
