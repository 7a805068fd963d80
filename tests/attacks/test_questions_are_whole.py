"""What a model tries so that a person allows more than they see; on the real OpenCode and the own agent."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anyio
import pytest
from desk import Person
from mcp import Client
from world import World, a_world, told

from goent.domain.events import PermissionAnswered, PermissionAsked
from goent.testing.script import Script, call, case, openai, say

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

BLANKS = "echo run the tests" + " " * 1700 + "; touch pwned"
LINES = "echo run the tests" + "\n" * 200 + "touch pwned"
STEERING = "echo run the tests #\r\x1b[2K\x1b[1A\u202e\u2800\ntouch pwned"
LONG = "echo '" + "run the tests " * 600 + "'; touch pwned"
CONTENT = "".join(f"line {number}\n" for number in range(900)) + "import os; os.system('pwn')\n"
# By OpenCode's names for its tools, and by those of go-ent's own agent.
OPENCODE = {"bash": "bash", "write": "write", "path": "filePath"}
OWN = {"bash": "Bash", "write": "Write", "path": "file_path"}


def cases(prefix: str, names: dict[str, str]) -> list[Any]:
    def run(command: str) -> Any:
        more = {"description": "Run the tests"} if names is OPENCODE else {}
        return call(names["bash"], command=command, **more)

    def write(path: str, content: str) -> Any:
        return call(names["write"], **{names["path"]: path, "content": content})

    return [
        case(f"{prefix} blanks", run(BLANKS), say("Ran.")),
        case(f"{prefix} lines", run(LINES), say("Ran.")),
        case(f"{prefix} steering", run(STEERING), say("Ran.")),
        case(f"{prefix} long", run(LONG), say("Ran.")),
        case(f"{prefix} edit", write("{cwd}/long.py", CONTENT), say("Written.")),
        case(
            f"{prefix} guarded",
            write(f"{{cwd}}/.husky/{prefix}", "x\n"),
            write(f"{{cwd}}/.husky/{prefix}", "y\n"),
        ),
        case(f"{prefix} twice", run("echo a*"), run("echo a*"), run("echo ab"), say("Ran.")),
        case(f"{prefix} corrected", run("touch refused"), say("As you say.")),
        case(f"{prefix} further", say("Still here.")),
    ]


SCRIPT = Script(
    providers={
        "moonshot": openai(
            *cases("opencode", OPENCODE),
            case(
                "opencode secrets", call("read", filePath="{cwd}/private.txt"), say("As you say.")
            ),
            *cases("own", OWN),
            models=("glm-4",),
            key="sk-moonshot-real-key",
        )
    }
)
CONFIG = """\
opencode: {profile: hermetic}
daemon: {idle_exit_s: 120}
default_provider: moonshot/glm-4
permissions:
  timeout_s: 250
  rules: [{tool: read, pattern: "*private.txt", action: ask}]
"""
WAYS = pytest.mark.parametrize("way", ["opencode", "own"])


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    async with a_world(tmp_path_factory.mktemp("whole"), SCRIPT, config=CONFIG) as world:
        yield world


async def spawn(lead: Client, way: str, task: str, permissions: str = "ask") -> str:
    """A worker that has asked its first question."""
    asked = {"task": f"{way} {task}", "permissions": permissions, "wait_s": 60}
    if way == "own":
        spawned = told(await lead.call_tool("agent_spawn_acp", asked | {"model": "moonshot/glm-4"}))
    else:
        asked["task"] = f"opencode {task}"
        method = "serve" if way == "serve" else "acp"
        more = {"provider": "moonshot/glm-4", "method": method, "isolation": "shared"}
        spawned = told(await lead.call_tool("worker_spawn", asked | more))
    assert spawned["state"] == "waiting", spawned
    return spawned["worker_id"]


async def question(lead: Client, worker: str, **more: object) -> dict[str, Any]:
    status = told(await lead.call_tool("worker_status", {"worker_id": worker, **more}))
    assert status["permission"], status
    return status["permission"]


async def answer(lead: Client, worker: str, option: str, message: str = "") -> dict[str, Any]:
    asked = await question(lead, worker)
    said = {"worker_id": worker, "permission_id": asked["id"], "option": option}
    return told(await lead.call_tool("worker_answer", {**said, "message": message}))


async def ended(lead: Client, worker: str) -> dict[str, Any]:
    waited = told(await lead.call_tool("worker_wait", {"worker_ids": [worker]}))
    return waited["workers"][0]


@WAYS
@pytest.mark.parametrize(
    ("task", "command", "seen"),
    [
        ("blanks", BLANKS, "echo run the tests⟨1,700 blanks⟩; touch pwned"),
        ("lines", LINES, "echo run the tests\n⟨199 empty lines⟩\ntouch pwned"),
        (
            "steering",
            STEERING,
            "echo run the tests #\\r\\x1b[2K\\x1b[1A\\u202e\\u2800\ntouch pwned",
        ),
    ],
    ids=["blanks", "lines", "steering"],
)
async def test_the_end_of_a_command_cannot_be_pushed_out_of_sight(
    world: World, way: str, task: str, command: str, seen: str
) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, way, task)
        asked = await question(lead, worker)
        assert (asked["detail"], asked["shown"], asked["omitted"]) == (command, seen, 0)
        shown = await world.go_ent("status", worker)
        assert "\x1b" not in shown.out and "touch pwned" in shown.out
        for line in seen.split("\n"):
            assert line in " ".join(shown.out.split()), shown.out
        listed = (await world.go_ent("ps")).out
        assert "touch pwned" in "".join(listed.split("\n")[:3]).replace("  ", "")
        assert seen in (await world.go_ent("output", worker)).out
        told_json = json.loads((await world.go_ent("status", worker, "--json")).out)
        assert told_json["permission"]["detail"] == command
        await answer(lead, worker, "reject")
        await ended(lead, worker)
    (event,) = [
        each.event
        for each in await world.journal(worker)
        if isinstance(each.event, PermissionAsked)
    ]
    assert event.detail == command
    assert not (world.project / "pwned").exists()


@WAYS
async def test_a_long_command_is_whole_wherever_it_is_data(world: World, way: str) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, way, "long")
        asked = await question(lead, worker)
        assert asked["detail"].endswith("'; touch pwned")
        assert f"{asked['omitted']:,} more characters" in asked["detail"]
        assert (await question(lead, worker, whole=True))["detail"] == LONG
        assert asked["seconds_left"] <= 250 and asked["expires_at"]
        assert asked["always"].startswith('allow bash "echo')
        assert asked["always"].endswith('; touch pwned" for this worker')
        told_json = json.loads((await world.go_ent("status", worker, "--json")).out)
        assert told_json["permission"]["detail"] == LONG
        assert LONG in (await world.go_ent("output", worker)).out
        await answer(lead, worker, "reject")
        status = await ended(lead, worker)
        assert status["open"], "a no keeps the worker"


@WAYS
async def test_a_long_edit_is_whole(world: World, way: str) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, way, "edit")
        asked = await question(lead, worker, whole=True)
        assert asked["tool"] == "edit" and "long.py" in asked["detail"].split("\n")[0]
        added = [line[1:] for line in asked["detail"].split("\n") if line.startswith("+")]
        assert "".join(f"{line}\n" for line in added) == CONTENT
        assert (await question(lead, worker))["detail"].endswith("+import os; os.system('pwn')")
        await answer(lead, worker, "reject")
        await ended(lead, worker)
    assert not (world.project / "long.py").exists()


@WAYS
async def test_a_guarded_file_says_why_and_has_no_always(world: World, way: str) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, way, "guarded", "auto")
        asked = await question(lead, worker)
        assert "git hooks" in asked["reason"] and asked["always"] == ""
        assert [option["id"] for option in asked["options"]] == ["allow_once", "reject"]
        assert "git hooks" in (await world.go_ent("status", worker)).out
        await answer(lead, worker, "allow_once")
        again = await ended(lead, worker)
        assert again["permission"]["reason"] == asked["reason"], "each change is asked"
        await answer(lead, worker, "reject")
        await ended(lead, worker)


@WAYS
async def test_an_always_writes_the_rule_that_it_names_and_no_wider_one(
    world: World, way: str
) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, way, "twice")
        assert (await question(lead, worker))["always"] == 'allow bash "echo a*" for this worker'
        await answer(lead, worker, "allow_always")
        second = await ended(lead, worker)
        assert second["permission"]["detail"] == "echo ab", "the same is not asked again"
        await answer(lead, worker, "allow_once")
        assert (await ended(lead, worker))["state"] == "completed"


@pytest.mark.parametrize("way", ["opencode", "serve", "own"])
async def test_a_no_with_words_is_told_to_the_model_and_the_turn_goes_on(
    world: World, way: str
) -> None:
    words = "use `make check` instead"
    async with world.client() as lead:
        worker = await spawn(lead, way, "corrected")
        answered = await answer(lead, worker, "reject", words)
        assert answered["message_passed"] is True
        status = await ended(lead, worker)
        assert (status["state"], status["open"]) == ("completed", True)
        result = told(await lead.call_tool("worker_result", {"worker_id": worker}))
        assert result["text"] == "As you say."
    assert words in str(world.models.calls[-1].request), "the model was told"
    assert not (world.project / "refused").exists()
    (event,) = [
        each.event
        for each in await world.journal(worker)
        if isinstance(each.event, PermissionAnswered)
    ]
    assert (event.option, event.message) == ("reject", words)


@pytest.mark.parametrize("way", ["opencode", "serve"])
async def test_words_reach_the_model_also_where_opencode_itself_asks(
    world: World, way: str
) -> None:
    """To read a file is asked by OpenCode, by a rule, and not by the guard inside it."""
    (world.project / "private.txt").write_text("KEY=s3cret\n")
    async with world.client() as lead:
        worker = await spawn(lead, way, "secrets")
        asked = await question(lead, worker)
        assert asked["tool"] == "read" and asked["always"].endswith('private.txt" for this worker')
        answered = await answer(lead, worker, "reject", "leave my secrets alone")
        assert answered["message_passed"] is True
        assert (await ended(lead, worker))["state"] == "completed"
    told_to_it = str(world.models.calls[-1].request)
    assert "leave my secrets alone" in told_to_it and "s3cret" not in told_to_it


@WAYS
async def test_a_plain_no_keeps_the_worker_for_a_further_prompt(world: World, way: str) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, way, "corrected")
        await answer(lead, worker, "reject")
        assert (await ended(lead, worker))["open"]
        prompt = {"worker_id": worker, "prompt": f"{way} further", "wait_s": 60}
        prompted = told(await lead.call_tool("worker_prompt", prompt))
        assert prompted["result"]["text"] == "Still here."


async def test_the_command_line_says_no_with_words(world: World) -> None:
    async with world.client() as lead:
        worker = await spawn(lead, "opencode", "corrected")
        wrong = await world.go_ent("answer", worker, "allow_once", "--message", "but")
        assert wrong.exit == 2 and "--message works only with reject" in wrong.err
        said = await world.go_ent("answer", worker, "reject", "--message", "do it by hand")
        assert said.exit == 0 and said.err == ""
        assert (await ended(lead, worker))["state"] == "completed"
    assert "do it by hand" in str(world.models.calls[-1].request)


Watch = Callable[[Person], None]


async def at_terminal(world: World, task: str, watch: Watch, **environ: str) -> None:
    """In a thread: the models answer in this one."""
    run = ("run", f"opencode {task}", "--permissions", "ask", "--isolation", "shared")

    def sit() -> None:
        watch(Person(*run, cwd=world.project, env={**world.env, **environ}))

    await anyio.to_thread.run_sync(sit)


async def test_a_person_sees_the_end_of_a_command(world: World) -> None:
    def watch(person: Person) -> None:
        person.sees("? bash: echo run the tests⟨1,700 blanks⟩; touch pwned")
        person.sees("left  [y] yes, once")
        person.types("n")
        assert person.leaves() == 1

    await at_terminal(world, "blanks", watch)


async def test_without_colours_a_diff_has_none(world: World) -> None:
    def watch(person: Person) -> None:
        person.sees("+import os; os.system('pwn')")
        assert "\x1b[32m" not in person.seen and "\x1b[31m" not in person.seen
        person.sees("[n] no")
        person.types("n")
        assert person.leaves() == 1

    await at_terminal(world, "edit", watch, NO_COLOR="1")


async def test_a_person_can_view_a_long_edit(world: World) -> None:
    def watch(person: Person) -> None:
        person.sees("more characters; press v to see all")
        person.sees("+import os; os.system('pwn')")
        assert "+line 500\x1b" not in person.seen
        assert "\x1b[32m+line 1\x1b" in person.seen, "a diff has its colours"
        person.sees("[v] view all")
        person.types("v")
        person.sees("+line 500\x1b")
        person.types("n")
        assert person.leaves() == 1

    await at_terminal(world, "edit", watch)
    assert not (world.project / "long.py").exists()


async def test_a_person_says_no_and_what_to_do_instead(world: World) -> None:
    def watch(person: Person) -> None:
        person.sees("[i] no, but …")
        person.types("i")
        person.sees("no, do this instead:")
        person.types("run it yesterdaz\x7f\x7fay\r")
        person.sees("reject (by cli): run it yesterday")
        person.sees("As you say.")
        assert person.leaves() == 0

    await at_terminal(world, "corrected", watch)
    assert "run it yesterday" in str(world.models.calls[-1].request)
