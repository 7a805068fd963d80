"""What passes through the gateway, and what is said about it."""

import logging
import math
import time

import anyio
import httpx2
import pytest
from fake_provider import Script, anthropic_pieces, openai_pieces
from gateway_world import KEY, World, open_world, told
from witness import Witness

from goent.domain.money import FinishedCall
from goent.domain.types import Usage
from goent.gateway import response_writer
from goent.gateway.gateway import Gateway
from goent.providers.gateway_errors import unmask_retry_words

pytestmark = pytest.mark.anyio

BODY = b'{"model": "glm-4.7",  "stream":true, "messages":[{"role":"user","content":"\xc3\xa9"}]}'


async def test_a_stream_and_its_request_pass_as_they_are(world: World):
    world.provider.script = Script(openai_pieces("déjà\n\u2028"))
    direct = await world.client.post(
        f"{world.provider.base_url}/chat/completions", content=BODY, headers={"x-own": "1"}
    )
    passed = await world.client.post(
        world.url(), content=BODY, headers={**world.headers(), "x-own": "1"}
    )
    assert (passed.status_code, passed.content) == (direct.status_code, direct.content)
    assert passed.headers["content-type"].startswith("text/event-stream")
    first, second = world.provider.seen
    assert second.body == first.body == BODY
    assert second.path == "/v1/chat/completions"
    assert second.headers["x-own"] == "1"


@pytest.mark.spec("P33")
async def test_the_usage_of_an_openai_stream_is_counted(world: World):
    world.provider.script = Script(openai_pieces())
    await world.client.post(world.url(), content=BODY, headers=world.headers())
    (call,) = world.calls
    assert call.usage == Usage(input=20, cache_read=100, output=20, reasoning=10)
    assert (call.worker, call.session, call.backend) == ("w1", "s1", "glm")
    assert (call.model, call.status, call.error) == ("glm-4.7", 200, "")
    assert call.seconds > 0


@pytest.mark.spec("P33")
async def test_the_usage_of_an_anthropic_stream_is_counted(world: World):
    world.provider.script = Script(anthropic_pieces())
    answer = await world.client.post(
        world.url("messages", "anth"),
        content=b'{"model":"haiku","stream":true}',
        headers={"x-api-key": world.token, "x-session-id": "s1"},
    )
    assert answer.content == b"".join(anthropic_pieces())
    assert world.calls[0].usage == Usage(input=500, output=100, cache_read=200, cache_write=300)
    assert world.provider.seen[0].headers["x-api-key"] == KEY
    assert "authorization" not in world.provider.seen[0].headers


async def test_the_usage_of_a_plain_answer_is_counted(world: World):
    world.provider.script = Script(
        [b'{"choices":[{"message":{"content":"hi"}}],', b'"usage":{"prompt_tokens":7}}'],
        content_type="application/json",
        chunked=False,
    )
    answer = await world.client.post(world.url(), content=b"{}", headers=world.headers())
    assert answer.content == b"".join(world.provider.script.pieces)
    assert world.calls[0].usage == Usage(input=7)


async def test_the_provider_gets_the_real_key_and_the_worker_never_sees_it(world: World):
    world.provider.script = Script(
        [b'{"error":{"message":"bad key %s"}}' % KEY.encode()],
        status=401,
        content_type="application/json",
        headers={"set-cookie": "account=1"},
    )
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 401
    assert "go-ent: auth_refused: backend 'glm' answered 401: bad key [redacted]" in told(answer)
    assert "set-cookie" not in answer.headers
    assert world.provider.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert world.token not in str(world.provider.seen[0].headers)
    assert world.calls[0].status == 401
    assert "bad key [redacted]" in world.calls[0].error


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize(
    "body", [b'{"error":{"message":"bad key %b"}}', b"{{{ %b", b'{"choices":"%b"}']
)
async def test_a_key_that_is_quoted_instead_of_an_answer_goes_no_further(
    world: World, body: bytes, stream: bool
):
    said = body % KEY.encode()
    if stream:
        world.provider.script = Script([openai_pieces()[0], b"data: %b\n\n" % said])
    else:
        world.provider.script = Script([said], content_type="application/json", chunked=False)
    asked = BODY if stream else BODY.replace(b"true", b"false")
    answer = await world.client.post(world.url(), content=asked, headers=world.headers())
    assert "[redacted]" in unmask_retry_words(answer.text) and "[redacted]" in world.calls[0].error
    assert KEY not in unmask_retry_words(answer.text) + world.calls[0].error


async def test_a_key_that_is_quoted_in_a_list_of_models_goes_no_further(world: World):
    body = b'{"error":{"message":"bad key %b"}}' % KEY.encode()
    world.provider.script = Script([body], status=401, content_type="application/json")
    answer = await world.client.get(world.url("models"), headers=world.headers())
    assert (answer.status_code, told(answer)) == (401, "bad key [redacted]")


async def test_the_connection_to_the_provider_is_used_again(world: World):
    world.provider.script = Script(openai_pieces())
    for _ in range(3):
        await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert world.provider.connections == 1


async def test_a_short_answer_is_not_delayed(world: World):
    world.provider.script = Script(openai_pieces())
    direct = f"{world.provider.base_url}/chat/completions"
    quickest = {direct: math.inf, world.url(): math.inf}
    # The kernel's delayed acknowledgement would take 0.04, every time; a busy machine, now and then.
    for _ in range(200):
        for url, best in quickest.items():
            began = time.perf_counter()
            await world.client.post(url, content=BODY, headers=world.headers())
            quickest[url] = min(best, time.perf_counter() - began)
        if quickest[world.url()] < quickest[direct] + 0.035:
            return
    pytest.fail(f"every answer was delayed: {quickest}")


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
async def test_what_would_make_opencode_call_again_never_reaches_it(world: World, status: int):
    world.provider.script = Script(
        [b'{"error":{"message":"slow down"}}'],
        status=status,
        content_type="application/json",
        headers={"retry-after": "3600"},
    )
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 424
    assert "retry-after" not in answer.headers
    assert f"answered {status}: slow down" in told(answer)
    assert (world.calls[0].status, world.calls[0].usage) == (status, None)


async def test_an_overflow_is_told_so_that_a_program_can_shorten_its_talk(world: World):
    words = b'{"error":{"message":"too much","code":"context_length_exceeded"}}'
    world.provider.script = Script([words], status=400, content_type="application/json")
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"


async def test_a_call_is_reported_before_its_last_bytes_arrive(world: World):
    world.provider.script = Script(openai_pieces())
    async with world.client.stream(
        "POST", world.url(), content=BODY, headers=world.headers()
    ) as answer:
        seen = b""
        async for piece in answer.aiter_raw():
            seen += piece
            if b"[DONE]" in seen:
                assert world.calls
    assert len(world.calls) == 1


async def test_the_end_of_a_stream_is_not_held_up_by_an_open_connection(world: World):
    world.provider.script = Script([*openai_pieces(), b": bye\n\n"], waits=4)
    async with world.client.stream(
        "POST", world.url(), content=BODY, headers=world.headers()
    ) as answer:
        pieces = answer.aiter_raw()
        seen = b""
        while b"[DONE]" not in seen:
            seen += await anext(pieces)
        assert world.calls[0].usage
        await world.gateway.settle("w1")
        world.provider.script.go_on.set()
        async for piece in pieces:
            seen += piece
    assert seen.endswith(b"data: [DONE]\n\n")
    assert len(world.calls) == 1


async def test_a_client_that_hangs_up_ends_the_call_at_the_provider(world: World):
    world.provider.script = script = Script(anthropic_pieces(), waits=2)
    async with world.client.stream(
        "POST", world.url("messages", "anth"), content=BODY, headers=world.headers()
    ) as answer:
        await anext(answer.aiter_raw())
        await script.reached.wait()
    with anyio.fail_after(20):
        await script.client_left.wait()
    await world.gateway.settle("w1")
    (call,) = world.calls
    assert "cut off" in call.error, "it was not the provider's silence that ended it"
    assert call.usage == Usage(input=500, output=1, cache_read=200, cache_write=300)


@pytest.mark.parametrize(
    "script",
    [
        Script(openai_pieces(finish=False)),
        Script(openai_pieces()[:1], breaks=True),
        Script([*openai_pieces()[:1], b'data: {"error":{"message":"no more"}}\n\n']),
        Script([*openai_pieces()[:1], b'data: {"choi']),
    ],
    ids=["no reason", "cut", "an error inside", "half a line"],
)
async def test_a_stream_that_breaks_ends_with_an_error_and_not_without_a_word(
    world: World, script: Script
):
    world.provider.script = script
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.content.startswith(script.pieces[0])
    last = unmask_retry_words(answer.content.removeprefix(script.pieces[0]).decode())
    assert last.startswith('data: {"error":{"message":"go-ent: provider_down: ')
    assert world.calls[0].status == 200
    assert "glm" in world.calls[0].error


async def test_a_provider_that_cannot_be_reached_is_named(world: World):
    dead = httpx2.URL(world.provider.base_url).copy_with(port=1)
    world.backends["glm"] = type(world.backends["glm"])(
        id="glm", base_url=str(dead), key_env="GLM_KEY"
    )
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 424
    assert "127.0.0.1:1" in told(answer)
    assert KEY not in answer.text + world.calls[0].error


async def test_a_provider_that_says_nothing_is_not_waited_for_again(world: World):
    world.provider.script = Script(openai_pieces(), waits=-1)
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 424, "OpenCode tries a 504 five times more"
    assert "provider_timeout" in told(answer)


async def test_comments_keep_a_long_wait_alive(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(response_writer, "KEEP_ALIVE_S", 0.05)
    world.provider.script = script = Script(openai_pieces(), waits=-1)
    async with world.client.stream(
        "POST", world.url(), content=BODY, headers=world.headers()
    ) as answer:
        pieces = answer.aiter_raw()
        assert (await anext(pieces)).startswith(b": ")
        script.go_on.set()
        rest = b"".join([piece async for piece in pieces])
    events = [event for event in rest.split(b"\n\n") if not event.startswith(b": ")]
    assert b"\n\n".join(events) == b"".join(script.pieces)


async def test_a_key_that_no_header_can_carry_is_not_quoted(world: World):
    world.environ["GLM_KEY"] = KEY + "\nX"
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 400
    assert KEY not in answer.text + world.calls[0].error


async def test_the_key_is_in_no_log(world: World, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.DEBUG):
        for script in (Script(openai_pieces()), Script([b"no"], status=500), Script([], waits=-1)):
            world.provider.script = script
            await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert [call.status for call in world.calls] == [200, 500, 499]
    assert caplog.text
    assert KEY not in caplog.text


async def test_settle_waits_for_the_report(world: World):
    world.provider.script = script = Script(openai_pieces(), waits=1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_post, world)
        await script.reached.wait()
        assert not world.calls
        tasks.start_soon(_let_go_once_waiting, script)
        await world.gateway.settle("w1")
        assert len(world.calls) == 1


async def test_a_gateway_that_closes_reports_the_calls_under_way(world: World):
    world.provider.script = script = Script(openai_pieces(), waits=1)
    async with anyio.create_task_group() as tasks:
        async with Gateway.open(world.upstream, world.plan) as gateway:
            token = gateway.issue_token()
            gateway.bind(token=token, session="s", worker="w")
            tasks.start_soon(_post_and_be_cut_off, world.client, gateway, token)
            await script.reached.wait()
        (call,) = world.calls
        assert "cut off" in call.error


class Deaf(Witness):
    async def call_finished(self, call: FinishedCall) -> None:
        raise OSError(28, "no space left")


async def test_a_report_that_fails_does_not_break_the_answer():
    async with open_world(Deaf()) as world:
        world.provider.script = Script(openai_pieces())
        answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
        await world.gateway.settle("w1")
        assert answer.content == b"".join(world.provider.script.pieces)


async def _post(world: World) -> None:
    await world.client.post(world.url(), content=BODY, headers=world.headers())


async def _let_go_once_waiting(script: Script) -> None:
    await anyio.wait_all_tasks_blocked()
    script.go_on.set()


async def _post_and_be_cut_off(client: httpx2.AsyncClient, gateway: Gateway, token: str) -> None:
    with pytest.raises(httpx2.RemoteProtocolError):
        await client.post(
            f"{gateway.base_url('glm')}/chat/completions",
            content=BODY,
            headers={"authorization": f"Bearer {token}"},
        )
