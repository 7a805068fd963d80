"""No construct of the shell runs unasked on the real OpenCode, whatever its parser makes of it."""

import itertools
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import anyio
import msgspec
import pytest
import yaml
from opencode_workers import ASKING, KEY, METHODS, Workers, workers

from goent.domain.settings import PermissionRule
from goent.domain.types import Method, Preset, Value
from goent.permissions.access_rules import AccessRequest, decide_access
from goent.permissions.permission_rules import rules_for
from goent.testing.script import Script, ScriptedToolUse, Step, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]
CORPUS = Path(__file__).with_name("shell_corpus.yaml")
LEAST = 200
FEW = 12
BATCH = 120  # calls in one answer: OpenCode's runtime has at most 256 requests under way
LONG = "x" * 20_000
REFUSED = "Permission 'bash' was refused because the method 'cli' has nobody to ask"
OF_OTHERS = "program"  # shapes that begin so need programs that a machine may lack


class Construct(Value, frozen=True, kw_only=True):
    """One way to create the file `{P}`."""

    shape: str
    name: str
    text: str

    def command(self, path: Path) -> str:
        return self.text.replace("{LONG}", LONG).replace("{P}", str(path))


def read_corpus() -> tuple[Construct, ...]:
    shapes = msgspec.convert(yaml.safe_load(CORPUS.read_text()), dict[str, dict[str, str]])
    return tuple(
        Construct(shape=shape, name=name, text=text)
        for shape, texts in shapes.items()
        for name, text in texts.items()
    )


def some(constructs: Sequence[Construct]) -> list[Construct]:
    """A few, of as many shapes."""
    by_shape = itertools.groupby(constructs, lambda each: each.shape)
    return [next(group) for _, group in by_shape][:FEW]


def commands(constructs: Sequence[Construct], folder: Path) -> list[str]:
    return [each.command(folder / f"p{n}") for n, each in enumerate(constructs)]


def batches(constructs: Sequence[Construct], folder: Path) -> list[list[str]]:
    lines = commands(constructs, folder)
    return [lines[at : at + BATCH] for at in range(0, len(lines), BATCH)]


def idle(constructs: Sequence[Construct], folder: Path) -> list[str]:
    """The names of those whose file is not there."""
    return [each.name for n, each in enumerate(constructs) if not _is_there(folder / f"p{n}")]


def _is_there(path: Path) -> bool:
    return path.exists() or path.is_symlink()


def in_one_answer(lines: Sequence[str]) -> Step:
    """A model's answer that calls for all of them."""
    uses = [ScriptedToolUse(tool="bash", input={"command": c, "description": "d"}) for c in lines]
    return Step(calls=tuple(uses), chunk=100_000)


def delegate(prompt: str) -> Step:
    return call("task", description="a part", prompt=prompt, subagent_type="general")


@pytest.fixture(scope="module")
async def working(tmp_path_factory: pytest.TempPathFactory) -> tuple[Construct, ...]:
    """The constructs that do create their file, by the shell that OpenCode runs commands with."""
    folder = tmp_path_factory.mktemp("corpus")
    corpus = read_corpus()
    limit = anyio.CapacityLimiter(4)

    async def run(command: str) -> None:
        async with limit:
            with anyio.move_on_after(20):
                await anyio.run_process(["bash", "-c", command], cwd=folder, check=False)

    async with anyio.create_task_group() as tasks:
        for command in commands(corpus, folder):
            tasks.start_soon(run, command)
    return tuple(each for n, each in enumerate(corpus) if _is_there(folder / f"p{n}"))


@pytest.fixture(scope="module")
async def attacked(
    working: Sequence[Construct], tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Workers]:
    folder = tmp_path_factory.mktemp("workers")
    proof, control = folder / "project" / "proof", folder / "project" / "control"
    done, few = say("Done."), some(working)
    tried = enumerate(batches(working, proof))
    allowed = enumerate(batches(working, control))
    script = Script(
        providers={
            "moonshot": openai(
                *(case(f"try batch {n};", in_one_answer(lines), done) for n, lines in tried),
                *(case(f"allow batch {n};", in_one_answer(lines), done) for n, lines in allowed),
                *(
                    case(f"allow some by {way};", in_one_answer(commands(few, control / way)), done)
                    for way in METHODS
                ),
                case("try some;", in_one_answer(commands(few, proof)), done),
                *(
                    case(f"delegate batch {n};", delegate(f"try batch {n};"), done)
                    for n, _ in enumerate(batches(working, proof))
                ),
                case("delegate some;", delegate("try some;"), done),
                models=("glm-4",),
                key=KEY,
            )
        }
    )
    async with workers(folder, script) as built:
        proof.mkdir()
        for way in METHODS:
            (control / way).mkdir(parents=True)
        yield built


async def test_the_corpus_creates_its_files_when_the_shell_runs_it(
    working: Sequence[Construct],
) -> None:
    names = {(each.shape, each.name) for each in working}
    without = [each for each in read_corpus() if (each.shape, each.name) not in names]
    assert len(working) >= LEAST
    assert not [each for each in without if not each.shape.startswith(OF_OTHERS)]


@pytest.mark.parametrize("before", ["", "echo ok; ", "echo ok && ", "echo ok\n", "echo ok | "])
async def test_a_rule_for_one_command_allows_none_of_the_corpus_beside_it(
    working: Sequence[Construct], before: str
) -> None:
    one = PermissionRule(tool="bash", pattern="echo *", action="allow")
    rules = rules_for("ask", [one])
    lines = [before + line for line in commands(working, Path("/proof"))]
    matters = [AccessRequest(permission="bash", patterns=(line,), exact=True) for line in lines]
    assert not [matter.patterns for matter in matters if decide_access(matter, rules) != "ask"]


@pytest.mark.parametrize("preset", ["ask", "edit"])
@pytest.mark.parametrize("method", ASKING)
async def test_every_construct_is_asked_with_the_whole_command(
    attacked: Workers, working: Sequence[Construct], method: Method, preset: Preset
) -> None:
    proof = attacked.project / "proof"
    for n, lines in enumerate(batches(working, proof)):
        outcome = await attacked.run(method, f"try batch {n};", preset, after=len(lines))
        assert sorted(outcome.details) == sorted(lines)
        assert {question.tool for question in outcome.asked} == {"bash"}
        assert outcome.failure == "permission_denied"
        assert not any(proof.iterdir())


async def test_every_construct_of_a_subagent_is_refused_where_nobody_can_be_asked(
    attacked: Workers, working: Sequence[Construct]
) -> None:
    """A subagent's refusal does not end the turn, so that all are tried."""
    proof = attacked.project / "proof"
    for n, lines in enumerate(batches(working, proof)):
        outcome = await attacked.run("cli", f"delegate batch {n};", "ask")
        assert outcome.result.state == "completed"
        refused = [text for text in attacked.tool_results(f"try batch {n};") if REFUSED in text]
        assert len(refused) == len(lines)
        assert not any(proof.iterdir())


@pytest.mark.parametrize("preset", ["ask", "edit"])
async def test_a_construct_of_its_own_ends_the_turn_where_nobody_can_be_asked(
    attacked: Workers, preset: Preset
) -> None:
    outcome = await attacked.run("cli", "try some;", preset)
    assert outcome.failure == "permission_denied"
    assert not any((attacked.project / "proof").iterdir())


@pytest.mark.parametrize("method", ASKING)
async def test_a_subagents_constructs_are_asked_one_by_one(
    attacked: Workers, working: Sequence[Construct], method: Method
) -> None:
    outcome = await attacked.run(method, "delegate some;", "edit")
    assert outcome.result.state == "completed"
    assert sorted(outcome.details) == sorted(commands(some(working), attacked.project / "proof"))
    assert not any((attacked.project / "proof").iterdir())


@pytest.mark.parametrize("method", METHODS)
async def test_a_readonly_worker_runs_none(attacked: Workers, method: Method) -> None:
    outcome = await attacked.run(method, "try some;", "readonly")
    assert "bash" not in {question.tool for question in outcome.asked}
    assert not any((attacked.project / "proof").iterdir())


async def test_for_contrast_a_worker_that_may_run_everything_creates_the_files(
    attacked: Workers, working: Sequence[Construct]
) -> None:
    control = attacked.project / "control"
    for n, _ in enumerate(batches(working, control)):
        await attacked.run("acp", f"allow batch {n};", "auto", answer="allow_once")
    assert not idle(working, control)


@pytest.mark.parametrize("method", METHODS)
async def test_for_contrast_each_method_runs_what_is_allowed(
    attacked: Workers, working: Sequence[Construct], method: Method
) -> None:
    await attacked.run(method, f"allow some by {method};", "auto", answer="allow_once")
    assert not idle(some(working), attacked.project / "control" / method)
