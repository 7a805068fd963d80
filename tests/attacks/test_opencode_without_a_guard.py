"""An OpenCode whose guard is not loaded gets nothing from a model, so nothing can run there."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from contract_stage import World, contract_world

from goent.domain.types import Method
from goent.opencode import call_guard, process_launch, process_pool
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(240)]

SCRIPT = Script(
    providers={
        "moonshot": openai(
            case("run it", call("bash", command="touch ran", description="r"), say("Done.")),
            case("say hello", say("Hello.")),
            models=("glm-4",),
            key="sk-contract-7f3a9c51d2",
        )
    }
)
HELLO = '  await post("hello", { directory });\n'
NO_GUARD = 'export const GoentGuard = async () => { throw new Error("not today") }\n'
NOT_HERE = '  if (existsSync(`${directory}/no-guard`)) throw new Error("not here");\n'

Start = Callable[[str], AbstractAsyncContextManager[World]]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """go-ent with another guard inside OpenCode."""

    @asynccontextmanager
    async def with_plugin(text: str) -> AsyncGenerator[World]:
        plugin = tmp_path / "project" / "guard.js"  # where OpenCode can see it
        plugin.parent.mkdir()
        plugin.write_text(text)
        monkeypatch.setattr(process_launch, "GUARD_PLUGIN", plugin)
        monkeypatch.setattr(call_guard, "LOAD_TIMEOUT_S", 3.0)
        async with contract_world(tmp_path, SCRIPT) as world:
            yield world

    return with_plugin


async def elsewhere(world: World, method: Method) -> None:
    """A turn in another directory, for which the first one is put away."""
    other = world.project / "other"
    other.mkdir(exist_ok=True)
    result = await world.run(method, "say hello", cwd=str(other))
    assert (result.failure, result.text) == (None, "Hello.")


@pytest.mark.parametrize("method", ["acp", "serve", "cli"])
async def test_no_model_is_asked_without_a_guard(start: Start, method: Method) -> None:
    async with start(NO_GUARD) as world:
        result = await world.run(method, "run it")
        assert result.failure and result.failure.kind == "worker_error"
        assert "did not load go-ent's guard" in result.failure.message
        assert not (world.project / "ran").exists()
        assert world.models.calls == []


@pytest.mark.parametrize("method", ["acp", "serve"])
async def test_a_directory_that_was_put_away_needs_its_guard_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    monkeypatch.setattr(process_pool, "MAX_SHARED_DIRECTORIES", 1)
    text = call_guard.GUARD_PLUGIN.read_text().replace(HELLO, NOT_HERE + HELLO)
    async with start(f'import {{ existsSync }} from "node:fs";\n{text}') as world:
        worker = await world.spawn(method, "say hello")
        first = await world.ended(worker)
        assert first.text == "Hello.", first.failure
        await elsewhere(world, method)
        (world.project / "no-guard").touch()
        await world.ask("worker_prompt", worker_id=worker, prompt="run it", wait_s=60)
        result = await world.ended(worker)
        assert result.failure and "did not load go-ent's guard" in result.failure.message
        assert not (world.project / "ran").exists()


@pytest.mark.parametrize("method", ["acp", "serve"])
async def test_a_directory_that_was_put_away_is_guarded_again(
    start: Start, monkeypatch: pytest.MonkeyPatch, method: Method
) -> None:
    monkeypatch.setattr(process_pool, "MAX_SHARED_DIRECTORIES", 1)
    async with start(call_guard.GUARD_PLUGIN.read_text()) as world:
        worker = await world.spawn(method, "say hello", permissions="readonly")
        first = await world.ended(worker)
        assert first.text == "Hello.", first.failure
        await elsewhere(world, method)
        await world.ask("worker_prompt", worker_id=worker, prompt="run it", wait_s=60)
        result = await world.ended(worker)
        assert not (world.project / "ran").exists(), result
