"""What passes through the gateway, and what is said about it."""

import logging
import time

import anyio
import httpx2
import pytest
from fake_provider import Script, anthropic_pieces, openai_pieces
from gateway_world import KEY, World

from goent.domain.types import Usage
from goent.gateway.server import Gateway

pytestmark = pytest.mark.anyio

BODY = b'{"model": "glm-4.7",  "stream":true, "messages":[{"role":"user","content":"\xc3\xa9"}]}'


async def test_a_stream_and_its_request_pass_byte_for_byte(world: World):
    world.provider.script = Script([b": hello\r\n\r\n", *openai_pieces("déjà\n\u2028")])
    direct = await world.client.post(
        f"{world.provider.base_url}/chat/completions", content=BODY, headers={"x-own": "1"}
    )
    passed = await world.client.post(
        world.url() + "?beta=true", content=BODY, headers={**world.headers(), "x-own": "1"}
    )
    assert (passed.status_code, passed.content) == (direct.status_code, direct.content)
    assert passed.headers["content-type"] == direct.headers["content-type"]
    first, second = world.provider.seen
    assert second.body == first.body == BODY
    assert second.path == "/v1/chat/completions?beta=true"
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
    assert answer.json() == {"error": {"message": "bad key [redacted]"}}
    assert "set-cookie" not in answer.headers
    assert world.provider.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert world.token not in str(world.provider.seen[0].headers)
    assert (world.calls[0].status, world.calls[0].error) == (401, "bad key [redacted]")


async def test_the_connection_to_the_provider_is_used_again(world: World):
    world.provider.script = Script(openai_pieces())
    for _ in range(3):
        await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert world.provider.connections == 1


async def test_a_short_answer_is_not_delayed(world: World):
    world.provider.script = Script(openai_pieces())
    took: list[float] = []
    for _ in range(10):
        began = time.perf_counter()
        await world.client.post(world.url(), content=BODY, headers=world.headers())
        took.append(time.perf_counter() - began)
    assert min(took) < 0.03  # the kernel's delayed acknowledgement takes 0.04


async def test_an_error_passes_as_it_is(world: World):
    body = b'{"error":{"message":"slow down","code":"rate_limit"}}'
    world.provider.script = Script(
        [body], status=429, content_type="application/json", headers={"retry-after": "6"}
    )
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert (answer.status_code, answer.content) == (429, body)
    assert answer.headers["retry-after"] == "6"
    assert (world.calls[0].status, world.calls[0].error) == (429, "slow down")
    assert world.calls[0].usage is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retry-after", "3600"),
        ("retry-after-ms", "3600000"),
        ("retry-after", "Wed, 21 Oct 2065 07:28:00 GMT"),
    ],
)
async def test_nobody_is_told_to_wait_for_long(world: World, name: str, value: str):
    headers = {name: value}
    world.provider.script = Script(
        [b"{}"], status=429, content_type="application/json", headers=headers
    )
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert (answer.status_code, name in answer.headers) == (429, False)


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
    assert seen.endswith(b": bye\n\n")
    assert len(world.calls) == 1


async def test_a_client_that_hangs_up_ends_the_call_at_the_provider(world: World):
    world.provider.script = script = Script(anthropic_pieces(), waits=2)
    async with world.client.stream(
        "POST", world.url("messages", "anth"), content=BODY, headers=world.headers()
    ) as answer:
        await anext(answer.aiter_raw())
        await script.reached.wait()
    with anyio.fail_after(0.4):  # before the provider's silence would have ended it
        await script.client_left.wait()
    await world.gateway.settle("w1")
    (call,) = world.calls
    assert "cut off" in call.error
    assert call.usage == Usage(input=500, output=1, cache_read=200, cache_write=300)


async def test_a_stream_without_a_finish_reason_ends_with_an_error(world: World):
    world.provider.script = Script(openai_pieces(finish=False))
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.content.startswith(b"".join(world.provider.script.pieces))
    assert b'"message":"go-ent: the provider' in answer.content
    assert "finish reason" in world.calls[0].error


async def test_an_error_inside_a_stream_is_reported_and_passes_unchanged(world: World):
    world.provider.script = Script([b'data: {"error":{"message":"overloaded"}}\n\n'])
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.content == world.provider.script.pieces[0]
    assert world.calls[0].error == "overloaded"


async def test_a_stream_that_breaks_off_breaks_off_for_the_worker_too(world: World):
    world.provider.script = Script(openai_pieces()[:1], breaks=True)
    with pytest.raises(httpx2.RemoteProtocolError):
        await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert "glm" in world.calls[0].error
    assert world.calls[0].status == 200


async def test_a_provider_that_cannot_be_reached_is_a_502(world: World):
    dead = httpx2.URL(world.provider.base_url).copy_with(port=1)
    world.backends["glm"] = type(world.backends["glm"])(
        id="glm", base_url=str(dead), key_env="GLM_KEY"
    )
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 502
    assert "127.0.0.1:1" in answer.json()["error"]["message"]
    assert world.calls[0].status == 502
    assert KEY not in answer.text + world.calls[0].error


async def test_a_provider_that_says_nothing_is_not_waited_for_again(world: World):
    world.provider.script = Script(openai_pieces(), waits=-1)
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 424, "OpenCode tries a 504 five times more"
    assert world.calls[0].status == 424


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
    assert [call.status for call in world.calls] == [200, 500, 424]
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
    calls: list[str] = []

    async def on_call(call: object) -> None:
        calls.append(str(call))

    world.provider.script = script = Script(openai_pieces(), waits=1)
    async with anyio.create_task_group() as tasks:
        async with Gateway.open(
            backends=lambda: world.backends, environ=lambda: world.environ, on_call=on_call
        ) as gateway:
            token = gateway.issue_token()
            gateway.bind(token=token, session="s", worker="w")
            tasks.start_soon(_post_and_be_cut_off, world.client, gateway, token)
            await script.reached.wait()
        assert len(calls) == 1
        assert "cut off" in calls[0]


async def test_a_report_that_fails_does_not_break_the_answer(world: World):
    async def on_call(_: object) -> None:
        raise OSError(28, "no space left")

    world.provider.script = Script(openai_pieces())
    async with Gateway.open(
        backends=lambda: world.backends, environ=lambda: world.environ, on_call=on_call
    ) as gateway:
        token = gateway.issue_token()
        gateway.bind(token=token, session="s", worker="w")
        answer = await world.client.post(
            f"{gateway.base_url('glm')}/chat/completions",
            content=BODY,
            headers={"authorization": f"Bearer {token}"},
        )
        await gateway.settle("w")
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
