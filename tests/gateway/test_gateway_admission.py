"""Who may call, on whose account, and what the gateway answers by itself."""

import msgspec
import pytest
from fake_provider import Script, openai_pieces
from gateway_world import World, told

from goent.domain.ports import Gate, Meter
from goent.domain.settings import Backend
from goent.gateway.gateway import WARM_BACKEND
from goent.providers.call_plan import CallPlan, ForeignBackend
from goent.providers.dialects import codec_for
from goent.providers.model_messages import StopPiece
from goent.providers.sse import SseSplitter

pytestmark = pytest.mark.anyio

BODY = b'{"model":"m","stream":true}'


@pytest.fixture(autouse=True)
def script(world: World) -> None:
    world.provider.script = Script(openai_pieces())


async def test_it_is_the_gate_and_the_meter_of_the_ports(world: World):
    gate: Gate = world.gateway
    meter: Meter = world.gateway
    assert gate.base_url("a/b") == f"http://127.0.0.1:{world.gateway.port}/a%2Fb"
    assert gate.issue_token() != gate.issue_token()
    await meter.settle("nobody")


async def test_a_call_without_a_good_token_is_turned_away_in_the_vendors_shape(world: World):
    openai = await world.client.post(world.url(), content=BODY)
    assert openai.status_code == 401
    assert openai.json()["error"]["type"] == "authentication_error"
    anthropic = await world.client.post(
        world.url("messages", "anth"), content=BODY, headers={"x-api-key": "goent_wrong"}
    )
    assert anthropic.status_code == 401
    assert anthropic.json()["type"] == "error"
    assert world.provider.seen == []
    assert world.calls == []


async def test_a_revoked_token_is_good_no_longer(world: World):
    world.gateway.revoke_token(world.token)
    answer = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert answer.status_code == 401


async def test_another_host_name_is_refused(world: World):
    answer = await world.client.post(
        world.url(), content=BODY, headers={**world.headers(), "host": "evil.example"}
    )
    assert answer.status_code == 403
    assert "evil.example" in told(answer)
    local = {**world.headers(), "host": f"localhost:{world.gateway.port}"}
    assert (await world.client.post(world.url(), content=BODY, headers=local)).status_code == 200


async def test_only_model_calls_are_forwarded(world: World):
    for rest in ("files", "chat/completions/x", "../v1/models", ""):
        answer = await world.client.get(world.url(rest), headers=world.headers())
        assert answer.status_code == 404
    assert world.provider.seen == []


async def test_counting_tokens_and_listing_models_pass_but_are_no_model_calls(world: World):
    world.provider.script = Script([b'{"input_tokens":9}'], content_type="application/json")
    counted = await world.client.post(
        world.url("messages/count_tokens", "anth"), content=BODY, headers=world.headers()
    )
    listed = await world.client.get(world.url("models"), headers=world.headers())
    assert counted.json() == listed.json() == {"input_tokens": 9}
    assert [seen.path for seen in world.provider.seen] == [
        "/v1/messages/count_tokens",
        "/v1/models",
    ]
    assert world.calls == []


async def test_a_child_session_is_billed_to_its_parents_worker(world: World):
    world.gateway.bind(token=world.token, session="s2", worker="w2")
    await _call(world, session="child", parent="s1")
    await _call(world, session="s2")
    await _call(world, session="unheard of")
    assert [(c.worker, c.session) for c in world.calls] == [
        ("w1", "child"),
        ("w2", "s2"),
        ("w2", "unheard of"),
    ]


async def test_a_session_counts_only_with_the_token_it_was_bound_to(world: World):
    other = world.gateway.issue_token()
    answer = await world.client.post(
        world.url(), content=BODY, headers={**world.headers(), "authorization": f"Bearer {other}"}
    )
    assert answer.status_code == 403
    world.gateway.bind(token=other, session="s9", worker="w9")
    headers = {**world.headers("s1"), "authorization": f"Bearer {other}"}
    await world.client.post(world.url(), content=BODY, headers=headers)
    assert world.calls[0].worker == "w9"


async def test_another_workers_session_id_never_bills_anybody_outside_the_process(world: World):
    """Inside a shared process a session is only a name; `dedicated` workers have a token each."""
    world.gateway.bind(token=world.token, session="s2", worker="w2")
    alone = world.gateway.issue_token()
    world.gateway.bind(token=alone, session="s3", worker="w3")
    for borrowed in ("s1", "s2", "s3"):
        await _call(world, session=borrowed)
        await _call(world, session="own", parent=borrowed)
    assert [call.worker for call in world.calls] == ["w1", "w1", "w2", "w2", "w2", "w2"]


async def test_late_calls_of_an_unbound_session_still_have_an_owner(world: World):
    world.gateway.unbind("s1")
    await _call(world, session="s1")
    assert world.calls[0].worker == "w1"


@pytest.mark.parametrize("rest", ["chat/completions", "messages"])
async def test_a_warm_up_session_is_answered_without_a_model(world: World, rest: str):
    world.gateway.bind(token=world.token, session="warm", worker=None)
    streamed = await world.client.post(world.url(rest), content=BODY, headers=world.headers("warm"))
    reader = codec_for("openai" if rest != "messages" else "anthropic").reader()
    chunks = [c for event in SseSplitter().feed(streamed.content) for c in reader.read(event)]
    assert StopPiece(reason="end") in chunks
    assert b'"ok"' in streamed.content
    plain = await world.client.post(
        world.url(rest), content=b'{"model":"m"}', headers=world.headers("warm", parent="warm")
    )
    assert b'"ok"' in plain.content
    assert msgspec.json.decode(plain.content)["model"] == "m"
    assert world.provider.seen == []
    assert world.calls == []


async def test_the_warm_backend_needs_no_session_but_a_token(world: World):
    url = world.url(backend=WARM_BACKEND)
    assert (await world.client.post(url, content=BODY)).status_code == 401
    answer = await world.client.post(url, content=BODY, headers=world.headers())
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.content.endswith(b"data: [DONE]\n\n")
    assert world.calls == []


async def test_what_is_missing_is_named(world: World):
    world.environ.clear()
    world.backends["bare"] = Backend(id="bare", key_env="X")
    no_key = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert no_key.status_code == 400
    assert "GLM_KEY" in told(no_key)
    bare = await world.client.post(world.url(backend="bare"), content=BODY, headers=world.headers())
    assert bare.status_code == 400
    assert "base_url" in told(bare)
    unknown = await world.client.post(
        world.url(backend="no/pe"), content=BODY, headers=world.headers()
    )
    assert unknown.status_code == 404
    assert "no/pe" in told(unknown)


async def _call(world: World, *, session: str, parent: str | None = None) -> None:
    answer = await world.client.post(
        world.url(), content=BODY, headers=world.headers(session, parent)
    )
    assert answer.status_code == 200


def _only(world: World, allowed: dict[str, set[str]]) -> None:
    """Each worker has backends of its own."""
    anyone = world.plan

    def plan(worker: str, backend: str, model: str) -> CallPlan:
        course = anyone(worker, backend, model)
        if backend not in allowed[worker]:
            raise ForeignBackend(f"worker {worker!r} may not call backend {backend!r}")
        return course

    world.plan = plan


async def test_a_key_is_good_for_the_backends_of_its_worker_alone(world: World):
    _only(world, {"w1": {"glm"}})
    own = await world.client.post(world.url(), content=BODY, headers=world.headers())
    assert own.status_code == 200
    for rest, backend in (("chat/completions", "spare"), ("messages", "anth"), ("models", "spare")):
        method = "GET" if rest == "models" else "POST"
        url = world.url(rest, backend)
        answer = await world.client.request(method, url, content=BODY, headers=world.headers())
        assert answer.status_code == 403
        assert f"backend {backend!r}" in told(answer)
    assert world.other.seen == [] and len(world.provider.seen) == 1


async def test_workers_of_one_process_have_their_own_backends_each(world: World):
    _only(world, {"w1": {"glm"}, "w2": {"spare"}})
    world.other.script = Script(openai_pieces())
    world.gateway.bind(token=world.token, session="s2", worker="w2")
    for session, parent, backend, status in (
        ("s1", None, "glm", 200),
        ("s1", None, "spare", 403),
        ("s2", None, "spare", 200),
        ("s2", None, "glm", 403),
        ("child", "s1", "glm", 200),
        ("child", "s1", "spare", 403),
    ):
        headers = world.headers(session, parent)
        answer = await world.client.post(world.url(backend=backend), content=BODY, headers=headers)
        assert answer.status_code == status, (session, backend)


async def test_a_session_that_nobody_announced_is_of_the_last_worker_that_may_call_there(
    world: World,
):
    _only(world, {"w1": {"glm"}, "w2": {"spare", "anth"}, "w3": {"glm"}})
    world.gateway.bind(token=world.token, session="s2", worker="w2")
    for session in ("s3", "gone"):
        world.gateway.bind(token=world.token, session=session, worker="w3")
    world.gateway.unbind("gone")
    world.gateway.unbind("s3")
    headers = world.headers("unheard of")
    assert (await world.client.post(world.url(), content=BODY, headers=headers)).status_code == 200
    assert [call.worker for call in world.calls] == ["w1"], "w2 may not, and w3 has left"
