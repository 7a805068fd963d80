"""A provider fails, and the worker's program does not notice: another one answers, or goes on."""

import anyio
import msgspec
import pytest
from fake_provider import FakeProvider, Script, anthropic_pieces, openai_pieces
from gateway_world import OTHER_KEY, SPARE, SPARE_ANTHROPIC, World, told

from goent.domain.settings import Backend
from goent.domain.types import Usage
from goent.providers.dialects import codec_for
from goent.providers.model_messages import AnswerChunk, StopPiece, TextPiece, ToolPiece
from goent.providers.sse import SseSplitter

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P37")]

BODY = msgspec.json.encode(
    {
        "model": "glm-4.7",
        "stream": True,
        "thinking": {"type": "enabled"},
        "messages": [{"role": "user", "content": "Count."}],
    }
)
ANTHROPIC_BODY = msgspec.json.encode(
    {
        "model": "sonnet",
        "stream": True,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Count."}],
    }
)


def said(*texts: str, call: str = "", finish: str | None = None) -> list[bytes]:
    """Pieces of an OpenAI stream, as far as it got."""
    deltas: list[dict[str, object]] = [{"content": text} for text in texts]
    if call:
        function = {"name": "write", "arguments": call}
        deltas.append({"tool_calls": [{"index": 0, "id": "c1", "function": function}]})
    choices: list[dict[str, object]] = [{"index": 0, "delta": d} for d in deltas]
    if finish:
        choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunks = (msgspec.json.encode({"id": "x", "choices": [choice]}) for choice in choices)
    return [b"data: %s\n\n" % chunk for chunk in chunks]


def read(answer: bytes, dialect: str = "openai") -> list[AnswerChunk]:
    reader = codec_for("anthropic" if dialect == "anthropic" else "openai").reader()
    splitter = SseSplitter()
    events = [*splitter.feed(answer), *splitter.close()]
    return [chunk for event in events for chunk in reader.read(event)]


def text(chunks: list[AnswerChunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextPiece))


def arguments(chunks: list[AnswerChunk]) -> str:
    return "".join(chunk.arguments for chunk in chunks if isinstance(chunk, ToolPiece))


async def ask(world: World, *, anthropic: bool = False) -> list[AnswerChunk]:
    url = world.url("messages", "anth") if anthropic else world.url()
    body = ANTHROPIC_BODY if anthropic else BODY
    answer = await world.client.post(url, content=body, headers=world.headers())
    assert answer.status_code == 200, answer.text
    assert answer.content.count(b"message_start") <= 2, "one message, begun once"
    return read(answer.content, "anthropic" if anthropic else "openai")


def messages(provider: FakeProvider) -> list[dict[str, object]]:
    return msgspec.json.decode(provider.seen[-1].body)["messages"]


@pytest.mark.parametrize(
    "script",
    [
        Script([b"{}"], status=429, content_type="application/json"),
        Script([b"{}"], status=503, content_type="application/json"),
        Script([b"<html>"], content_type="text/html"),
        Script([], waits=-1),
        Script([], breaks=True),
        Script(said()),
    ],
    ids=["429", "503", "a page", "silence", "cut", "nothing"],
)
async def test_before_the_first_word_nothing_shows(world: World, script: Script):
    world.fallbacks.append(SPARE)
    world.provider.script = script
    world.other.script = Script(openai_pieces("one two"))
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 200
    assert answer.content == b"".join(world.other.script.pieces)
    (move,) = world.witness.moves
    assert (move.worker, move.from_provider, move.to_provider) == ("w1", "glm/glm-4.7", "spare")
    assert "glm" in move.reason


async def test_the_fallback_is_asked_with_its_own_key_and_model_and_in_plain_words(world: World):
    world.fallbacks.append(SPARE)
    world.provider.script = Script([b"{}"], status=500)
    world.other.script = Script(openai_pieces())
    await ask(world)
    (seen,) = world.other.seen
    asked = msgspec.json.decode(seen.body)
    assert asked["model"] == "spare-1"
    assert "thinking" not in asked, "another vendor would refuse what it does not know"
    assert seen.headers["authorization"] == f"Bearer {OTHER_KEY}"
    assert "x-session-id" not in seen.headers


@pytest.mark.spec("P33")
async def test_each_try_is_counted_where_it_was_made(world: World):
    world.fallbacks.append(SPARE)
    world.provider.script = Script([b"{}"], status=429)
    world.other.script = Script(openai_pieces())
    await ask(world)
    first, second = world.calls
    assert (first.backend, first.status, first.billable) == ("glm", 429, False)
    assert (second.backend, second.model, second.status) == ("spare", "spare-1", 200)
    assert second.usage == Usage(input=20, cache_read=100, output=20, reasoning=10)


@pytest.mark.spec("P38")
async def test_a_rate_limit_is_remembered(world: World):
    world.fallbacks.append(SPARE)
    world.provider.script = Script([b"{}"], status=429, headers={"retry-after": "60"})
    world.other.script = Script(openai_pieces())
    for _ in range(3):
        await ask(world)
    assert (len(world.provider.seen), len(world.other.seen)) == (1, 3)
    assert len(world.witness.moves) == 1, "told when it moved, not with every call"


@pytest.mark.parametrize("again", [" three four", "one two three four"], ids=["rest", "anew"])
@pytest.mark.parametrize("anthropic", [False, True], ids=["openai", "anthropic"])
async def test_a_text_that_breaks_off_is_continued_and_nothing_is_doubled(
    world: World, again: str, anthropic: bool
):
    world.fallbacks.append(SPARE)
    begun = _anthropic_text("one two") if anthropic else said("one", " two")
    world.provider.script = Script(begun, breaks=True)
    world.other.script = Script([*said(again, finish="stop"), b"data: [DONE]\n\n"])
    chunks = await ask(world, anthropic=anthropic)
    assert text(chunks) == "one two" + again.removeprefix("one two")
    assert [c.reason for c in chunks if isinstance(c, StopPiece)] == ["end"]
    (asked,) = messages(world.other)
    assert "Count." in str(asked["content"]) and "one two" in str(asked["content"])


def _anthropic_text(text: str) -> list[bytes]:
    start, _, *_ = anthropic_pieces()
    block = {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "text", "text": ""},
    }
    delta = {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "text_delta", "text": text},
    }
    events = [(e["type"], msgspec.json.encode(e)) for e in (block, delta)]
    return [start, *(b"event: %s\ndata: %s\n\n" % (str(n).encode(), data) for n, data in events)]


async def test_half_a_tool_call_is_never_seen(world: World):
    world.fallbacks.append(SPARE)
    world.provider.script = Script(said("I write.", call='{"path": "a'), breaks=True)
    world.other.script = Script(said(call='{"path": "b"}', finish="tool_calls"))
    chunks = await ask(world)
    assert text(chunks) == "I write."
    assert arguments(chunks) == '{"path": "b"}'
    assert [c.reason for c in chunks if isinstance(c, StopPiece)] == ["tool_calls"]


async def test_a_tool_call_that_is_whole_is_made_though_the_end_was_lost(world: World):
    world.provider.script = Script(said("I write.", call='{"path": "a"}'), breaks=True)
    chunks = await ask(world)
    assert arguments(chunks) == '{"path": "a"}'
    assert [c.reason for c in chunks if isinstance(c, StopPiece)] == ["tool_calls"]


@pytest.mark.parametrize("anthropic", [False, True], ids=["to anthropic", "to openai"])
async def test_a_fallback_of_the_other_dialect_is_translated(world: World, anthropic: bool):
    world.fallbacks.append(SPARE if anthropic else SPARE_ANTHROPIC)
    world.provider.script = Script([b"{}"], status=500)
    world.other.script = Script(openai_pieces("hi") if anthropic else anthropic_pieces())
    chunks = await ask(world, anthropic=anthropic)
    assert text(chunks) == "hi"
    assert [c.reason for c in chunks if isinstance(c, StopPiece)] == ["end"]
    assert world.other.seen[0].path == ("/v1/chat/completions" if anthropic else "/v1/messages")


async def test_a_plain_answer_fails_over_and_is_translated_too(world: World):
    world.fallbacks.append(SPARE_ANTHROPIC)
    world.provider.script = Script([b"{}"], status=500)
    whole = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": "hi"}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 7, "output_tokens": 2},
    }
    world.other.script = Script([msgspec.json.encode(whole)], content_type="application/json")
    body = BODY.replace(b"true", b"false")
    answer = await world.client.post(world.url(), content=body, headers=world.headers())
    assert answer.json()["choices"][0]["message"]["content"] == "hi"
    assert world.calls[-1].usage == Usage(input=7, output=2)


@pytest.mark.parametrize("status", [400, 401, 422])
async def test_the_workers_own_mistake_moves_nobody(world: World, status: int):
    world.fallbacks.append(SPARE)
    world.provider.script = Script([b'{"error":{"message":"no"}}'], status=status)
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == (401 if status == 401 else 400)
    assert (world.other.seen, world.witness.moves) == ([], [])


async def test_when_all_fail_the_worker_is_told_about_each(world: World):
    world.fallbacks.append(SPARE)
    world.provider.script = Script([b'{"error":{"message":"slow down"}}'], status=429)
    world.other.script = Script([b'{"error":{"message":"gone"}}'], status=503)
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 424
    message = told(answer)
    assert message.startswith("go-ent: rate_limited: ")
    assert "slow down" in message and "fallback spare" in message and "gone" in message


async def test_a_fallback_that_cannot_be_used_is_passed_over(world: World):
    del world.environ["SPARE_KEY"]
    world.fallbacks.append(SPARE)
    world.provider.script = Script([b"{}"], status=500)
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 424
    assert world.other.seen == []


async def test_a_worker_that_hangs_up_is_not_served_by_anybody_else(world: World):
    world.fallbacks.append(SPARE)
    world.provider.script = script = Script(said("one"), waits=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, world)
        await script.reached.wait()
        tasks.cancel_scope.cancel()
    await world.gateway.settle("w1")
    assert world.other.seen == []
    assert "cut off" in world.calls[0].error


async def test_what_a_fallback_is_not_told_is_named_with_the_move(world: World):
    world.fallbacks.append(SPARE_ANTHROPIC)
    world.provider.script = Script([b"{}"], status=429, headers={"retry-after": "60"})
    world.other.script = Script(anthropic_pieces())
    url, headers = world.url(), world.headers()
    await world.client.post(url, content=BODY, headers=headers)
    (move,) = world.witness.moves
    assert move.reason.endswith("; claude is asked without thinking, which it may not support")
    more = {**msgspec.json.decode(BODY), "reasoning_effort": "high"}
    for _ in range(2):
        await world.client.post(url, content=msgspec.json.encode(more), headers=headers)
    told = "w1: claude is asked without reasoning_effort, thinking, which it may not support"
    assert world.witness.notices == [told]
    assert len(world.witness.moves) == 1


async def test_a_local_server_that_is_not_there_is_told_of_at_once(world: World):
    async with FakeProvider.open() as gone:
        address = gone.base_url
    world.backends["ollama"] = Backend(id="ollama", base_url=address, local=True)
    for _ in range(5):  # it may be started any time: no breaker keeps others from trying
        answer = await world.client.post(
            world.url(backend="ollama"), content=BODY, headers=world.headers()
        )
        line = f"Ollama is not running at {address}: start it with `ollama serve`"
        assert line in told(answer)
    assert world.witness.notices == []
    assert [call.billable for call in world.calls] == [False] * 5
    world.fallbacks.append(SPARE)
    world.other.script = Script(openai_pieces("one"))
    answer = await world.client.post(
        world.url(backend="ollama"), content=BODY, headers=world.headers()
    )
    assert text(read(answer.content)) == "one"


async def test_a_local_server_gets_no_key_and_says_which_model_it_lacks(world: World):
    world.backends["ollama"] = Backend(id="ollama", base_url=world.provider.base_url, local=True)
    body = b'{"error":{"message":"model \\"glm-4.7\\" not found, try pulling it first"}}'
    world.provider.script = Script([body], status=404, content_type="application/json")
    answer = await world.client.post(
        world.url(backend="ollama"), content=BODY, headers=world.headers()
    )
    assert "has no model 'glm-4.7': get it with `ollama pull glm-4.7`" in told(answer)
    (seen,) = world.provider.seen
    assert not seen.headers.keys() & {"authorization", "x-api-key"}
