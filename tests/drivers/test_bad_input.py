"""What bad input gets: a clear outcome each, never a hang, and no call too many."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import msgspec
import pytest
from bad_stage import BadWorld, bad_world
from contract_stage import KEY
from fake_provider import Script, openai_pieces

from goent.domain.replies import Result
from goent.domain.types import Usage, Value
from goent.operations.operation_table import Caller
from goent.providers.call_plan import RetrySettings

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

PAGE = b"<!doctype html><html><body>503 Service Unavailable</body></html>"
HUGE = "y" * 10_000_000
SHELL = "no such; $(touch x) `ls` model"
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"
EACH = 1 + RetrySettings().retries


def text(words: str) -> bytes:
    choice = {"index": 0, "delta": {"content": words}}
    return b"data: %s\n\n" % msgspec.json.encode({"id": "c", "choices": [choice]})


def json(body: bytes, status: int) -> Script:
    return Script([body], status=status, content_type="application/json")


def usage(figures: bytes) -> Script:
    told = b'data: {"choices":[],"usage":%s}\n\n' % figures
    return Script([text("Said."), STOP, told, DONE])


SCRIPTS = {
    "wrongkey": json(b'{"error":{"message":"wrong key %s"}}' % KEY.encode(), 401),
    "wrongpath": Script([PAGE], status=404, content_type="text/html"),
    "page": Script([PAGE], content_type="text/html"),
    "halfline": Script([text("one two"), b'data: {"choices":[{"index":0,"del']),
    "nojson": Script([text("one two"), b"data: {{{\n\n", DONE]),
    "empty": Script([]),
    "nousage": Script([text("Said."), STOP, DONE]),
    "negative": usage(b'{"prompt_tokens":-5,"completion_tokens":-1}'),
    "strings": usage(b'{"prompt_tokens":"many","completion_tokens":[1]}'),
    "endless": usage(b'{"prompt_tokens":1e300,"completion_tokens":99999999999999999999999}'),
    "chunk": Script([text(HUGE), *openai_pieces("."), DONE]),
    "toolong": Script([text(HUGE + HUGE), STOP, DONE]),
    "nomodel": json(b'{"error":{"message":"The model does not exist"}}', 404),
    "quoting": Script(
        [text("one"), b'data: {"error":{"message":"key %s is spent"}}\n\n' % KEY.encode()]
    ),
}


class Outcome(Value, frozen=True, kw_only=True):
    """How the turn fails. `calls` is how often the provider is asked: go-ent tries again, and
    the worker's program must not."""

    kind: str
    words: tuple[str, ...]
    calls: int = EACH
    said: str = ""


FAILURES: Mapping[str, Outcome] = {
    "wrongkey": Outcome(
        kind="auth_refused", words=("'wrongkey'", "check the backend's key"), calls=1
    ),
    "wrongpath": Outcome(
        kind="provider_refused", words=("404", "check the backend's base_url"), calls=1
    ),
    "page": Outcome(kind="provider_down", words=("'page' at", "text/html", "check its base_url")),
    "halfline": Outcome(kind="provider_down", words=("'halfline'", "broke off"), said="one two"),
    "nojson": Outcome(kind="provider_down", words=("'nojson'",), said="one two"),
    "empty": Outcome(kind="provider_down", words=("'empty'", "broke off")),
    "nobody": Outcome(kind="provider_down", words=("'nobody'", "127.0.0.1:1")),
    "toolong": Outcome(kind="provider_down", words=("'toolong'", "of more than")),
    "nomodel": Outcome(kind="unknown_model", words=("'nomodel'", "choose a model"), calls=1),
    "quoting": Outcome(kind="provider_down", words=("'quoting'",), said="one"),
}
UNCOUNTED = ("nousage", "negative", "strings", "endless")


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[BadWorld]:
    async with bad_world(tmp_path_factory.mktemp("bad"), SCRIPTS) as world:
        yield world


@pytest.fixture(scope="module")
async def ended(world: BadWorld) -> Mapping[str, Result]:
    """All at once: go-ent asks a provider that may recover again."""
    workers = {
        name: await world.spawn("api", "say something", provider=name)
        for name in (*FAILURES, *UNCOUNTED, "chunk")
    }
    return {name: await world.ended(worker) for name, worker in workers.items()}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_names_what_is_wrong_and_what_to_do(
    world: BadWorld, ended: Mapping[str, Result], name: str
) -> None:
    outcome, result = FAILURES[name], ended[name]
    assert result.failure and result.failure.kind == outcome.kind, result
    assert not [words for words in outcome.words if words not in result.failure.message]
    assert KEY not in result.failure.message
    assert result.text == outcome.said, "what was said is kept"
    if name in world.providers:
        assert len(world.asked(name)) == outcome.calls


@pytest.mark.spec("P37")
async def test_through_opencode_it_is_the_same_and_takes_no_call_more(
    world: BadWorld, ended: Mapping[str, Result]
) -> None:
    """OpenCode itself asks a provider again that ends without a reason, and does not end."""
    names = ("wrongkey", "page", "halfline", "nobody", "quoting")
    before = {name: len(world.asked(name)) for name in names if name in world.providers}
    forget = world.app.operations.cli_table["provider_reset"]
    await forget.call({}, Caller(name="test", cwd=world.app.project.folder))  # as if never asked
    workers = {name: await world.spawn("acp", "say something", provider=name) for name in names}
    for name, worker in workers.items():
        result, by_api = await world.ended(worker), ended[name]
        assert result.failure and by_api.failure and result.failure == by_api.failure, name
        assert result.text == by_api.text
    made = {name: len(world.asked(name)) - before[name] for name in before}
    assert made == {name: FAILURES[name].calls for name in before}


async def test_odd_answers_and_prompts_pass_opencode(world: BadWorld) -> None:
    """Told of more tokens than the window holds, OpenCode would summarise its talk for ever."""
    prompt = "/init -rf $HOME `ls` " + "z" * 1000
    names = ("endless", "negative")
    before = {name: len(world.asked(name)) for name in names}
    odd = {name: await world.spawn("acp", prompt, provider=name) for name in names}
    model = await world.spawn("acp", "say something", provider="nomodel", model=SHELL)
    for name, worker in odd.items():
        assert (await world.ended(worker)).state == "completed", name
        (asked,) = world.asked(name)[before[name] :]
        assert prompt.encode() in asked
    assert (await world.ended(odd["endless"])).usage == Usage()
    failure = (await world.ended(model)).failure
    assert failure and failure.kind == "unknown_model" and SHELL in failure.message


@pytest.mark.parametrize("name", UNCOUNTED)
async def test_figures_that_make_no_sense_are_unknown_and_the_work_is_done(
    ended: Mapping[str, Result], name: str
) -> None:
    result = ended[name]
    assert (result.state, result.text) == ("completed", "Said.")
    assert result.usage == Usage()
    assert result.cost_usd is None, "unknown is not nothing"


async def test_a_piece_of_ten_megabytes_arrives(ended: Mapping[str, Result]) -> None:
    result = ended["chunk"]
    assert result.state == "completed", result.failure
    assert len(result.text) <= len(HUGE) + 1 and result.text.startswith("yyy")


async def test_a_model_is_a_name_and_nothing_else(world: BadWorld) -> None:
    before = len(world.asked("nomodel"))
    result = await world.run("api", "say something", provider="nomodel", model=SHELL)
    assert result.failure and result.failure.kind == "unknown_model"
    (asked,) = world.asked("nomodel")[before:]
    assert msgspec.json.decode(asked)["model"] == SHELL
    assert not (world.project / "x").exists()


@pytest.mark.parametrize("start", ["/init ", "-rf --help ", "@note.txt $HOME `ls` \\ \x00é "])
async def test_a_prompt_arrives_letter_by_letter(world: BadWorld, start: str) -> None:
    prompt = start + "z" * 5_000_000 + "\n "
    result = await world.run("api", prompt)
    assert (result.state, result.text) == ("completed", "Heard.")
    request = world.models.calls[-1].request
    assert request and request.prompt == prompt


async def test_a_model_by_api_sees_texts_and_images(world: BadWorld) -> None:
    (world.project / "note é.txt").write_text("remember the milk\n")
    (world.project / "dot.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    result = await world.run("api", "look", files=["note é.txt", "dot.png"], provider="nousage")
    assert result.state == "completed", result.failure
    asked = msgspec.json.decode(world.asked("nousage")[-1])
    note, image, prompt = asked["messages"][-1]["content"]
    assert "note é.txt" in note["text"] and "remember the milk" in note["text"]
    assert image["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert prompt["text"] == "look"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("blob.bin", "neither text nor an image"),
        ("folder", "is a directory"),
        ("large.txt", "larger than the 2097152 bytes"),
        ("large.png", "larger than the 5242880 bytes"),
    ],
)
async def test_a_file_that_a_model_cannot_be_shown_is_named(
    world: BadWorld, name: str, words: str
) -> None:
    _make(world.project / name)
    before = len(world.models.calls)
    result = await world.run("api", "look", files=[name])
    assert result.state == "failed" and result.failure
    assert name in result.failure.message and words in result.failure.message
    assert len(world.models.calls) == before, "nobody is asked"


def _make(path: Path) -> None:
    match path.name:
        case "folder":
            path.mkdir()
        case "blob.bin":
            path.write_bytes(bytes(range(256)))
        case _:
            path.write_bytes(b"x" * 6_000_000)
