"""The vendors' own SDKs as clients of the gateway: any worker's program is built on one of them."""

from collections.abc import Sequence

import anthropic
import httpx2
import openai
import pytest
from fake_provider import FakeProvider, Script
from gateway_world import SPARE, SPARE_ANTHROPIC, World
from vendor_sdks import Understood, understood

from goent.domain.types import Dialect, Usage
from goent.providers.dialects import codec_for
from goent.providers.gateway_errors import unmask_retry_words
from goent.providers.model_messages import (
    AnswerChunk,
    ReasoningPiece,
    StopPiece,
    TextPiece,
    ToolPiece,
    UsagePiece,
)

pytestmark = [pytest.mark.anyio, pytest.mark.spec("P37")]

DIALECTS: tuple[Dialect, ...] = ("openai", "anthropic")
BACKENDS = {"openai": "glm", "anthropic": "anth"}
SPARES = {"openai": SPARE, "anthropic": SPARE_ANTHROPIC}
ANSWER: Sequence[AnswerChunk] = (
    TextPiece(text="I read, "),
    TextPiece(text="and é."),
    ToolPiece(index=0, id="call_1", name="read"),
    ToolPiece(index=0, arguments='{"path":'),
    ToolPiece(index=0, arguments='"a b"}'),
    UsagePiece(usage=Usage(input=10, cache_read=5, output=7)),
    StopPiece(reason="tool_calls"),
)
HEARD = {
    "openai": Understood(
        text="I read, and é.",
        calls=(("call_1", "read", '{"path":"a b"}'),),
        stop="tool_calls",
        input=15,
        output=7,
        cache_read=5,
    ),
    "anthropic": Understood(
        text="I read, and é.",
        calls=(("call_1", "read", {"path": "a b"}),),
        stop="tool_use",
        input=10,
        output=7,
        cache_read=5,
    ),
}
SAID = {
    400: "no such field",
    401: "who are you",
    404: "the model does not exist",
    429: "slow down",
    503: "not today",
}
TYPED = {
    400: (openai.BadRequestError, anthropic.BadRequestError),
    401: (openai.AuthenticationError, anthropic.AuthenticationError),
    404: (openai.NotFoundError, anthropic.NotFoundError),
    429: (openai.APIStatusError, anthropic.APIStatusError),
    503: (openai.APIStatusError, anthropic.APIStatusError),
}


def says(
    provider: FakeProvider,
    dialect: Dialect,
    *,
    stream: bool = True,
    chunks: Sequence[AnswerChunk] = ANSWER,
) -> None:
    if stream:
        writer = codec_for(dialect).writer("m")
        pieces = [*map(writer.write, chunks), writer.close()]
        provider.script = Script([piece for piece in pieces if piece])
    else:
        body = codec_for(dialect).write_answer("m", chunks)
        provider.script = Script([body], content_type="application/json", chunked=False)


def words(error: BaseException) -> str:
    """One of the SDKs shows the answer's body as Python would write it."""
    return unmask_retry_words(str(error).replace(r"\u2060", ""))


async def ask(world: World, dialect: Dialect, *, stream: bool = True, key: str = "") -> Understood:
    url = world.gateway.base_url(BACKENDS[dialect])
    return await understood(dialect, base_url=url, key=key or world.token, stream=stream)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_vendors_sdk_gets_its_answer(world: World, dialect: Dialect, stream: bool):
    says(world.provider, dialect, stream=stream)
    assert await ask(world, dialect, stream=stream) == HEARD[dialect]
    assert world.calls[0].usage == Usage(input=10, cache_read=5, output=7)
    assert world.provider.seen[0].path == f"/v1/{codec_for(dialect).path}"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("spare", DIALECTS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_failover_is_one_clean_answer_also_from_the_other_dialect(
    world: World, dialect: Dialect, spare: Dialect, stream: bool
):
    world.fallbacks.append(SPARES[spare])
    world.provider.script = Script([b"{}"], status=429, content_type="application/json")
    says(world.other, spare, stream=stream)
    assert await ask(world, dialect, stream=stream) == HEARD[dialect]
    asked = codec_for(spare).decode(world.other.seen[0].body)
    assert asked.model == SPARES[spare].model
    assert [len(message.parts) for message in asked.messages] == [2, 3, 3]
    assert [move.to_provider for move in world.witness.moves] == [SPARES[spare].name]


@pytest.mark.parametrize("spare", DIALECTS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_that_breaks_off_goes_on_without_the_sdk_noticing(
    world: World, dialect: Dialect, spare: Dialect
):
    world.fallbacks.append(SPARES[spare])
    writer = codec_for(dialect).writer("m")
    half = [writer.write(chunk) for chunk in ANSWER[:4]]  # into the middle of a tool call
    world.provider.script = Script([piece for piece in half if piece], breaks=True)
    says(world.other, spare)
    heard = await ask(world, dialect)
    assert (heard.text, heard.calls) == (HEARD[dialect].text, HEARD[dialect].calls)
    assert heard.stop == HEARD[dialect].stop


async def test_thoughts_reach_the_sdk_that_can_show_them(world: World):
    chunks = (ReasoningPiece(text="hm"), *ANSWER)
    world.fallbacks.append(SPARE)
    world.provider.script = Script([b"{}"], status=500)
    says(world.other, "openai", chunks=chunks)
    assert (await ask(world, "anthropic")).reasoning == "hm"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("status", TYPED)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_failure_is_the_sdks_own_typed_error_and_names_the_provider(
    world: World, dialect: Dialect, status: int, stream: bool
):
    body = b'{"error":{"message":"%s"}}' % SAID[status].encode()
    world.provider.script = Script([body], status=status, content_type="application/json")
    with pytest.raises(TYPED[status][DIALECTS.index(dialect)]) as raised:
        await ask(world, dialect, stream=stream)
    told = f"backend {BACKENDS[dialect]!r} answered {status}: {SAID[status]}"
    assert told in words(raised.value)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_wrong_key_is_an_authentication_error(world: World, dialect: Dialect):
    with pytest.raises(TYPED[401][DIALECTS.index(dialect)]) as raised:
        await ask(world, dialect, key="goent_wrong")
    assert "not, or no longer, a key of this gateway" in words(raised.value)
    assert world.provider.seen == []


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_an_answer_that_nobody_can_finish_raises_in_the_stream(
    world: World, dialect: Dialect
):
    writer = codec_for(dialect).writer("m")
    world.provider.script = Script([writer.write(ANSWER[0])], breaks=True)
    with pytest.raises((openai.APIError, anthropic.APIError)) as raised:
        await ask(world, dialect)
    assert type(raised.value).__module__.startswith(dialect)
    assert "go-ent: provider_down: backend" in words(raised.value)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_an_sdk_that_tries_again_by_itself_has_no_reason_to(world: World, status: int):
    world.provider.script = Script([b"{}"], status=status, headers={"retry-after": "0"})
    url = world.gateway.base_url("glm")
    async with httpx2.AsyncClient(trust_env=False) as http:
        client = openai.AsyncOpenAI(base_url=url, api_key=world.token, http_client=http)
        with pytest.raises(openai.APIStatusError):
            await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x"}]
            )
    assert len(world.provider.seen) == 1
