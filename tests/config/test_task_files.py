"""`tasks.yaml`: all of it becomes a request, and every mistake has its line."""

import pytest

from goent.config.task_file import read_tasks
from goent.domain.errors import ConfigError
from goent.domain.swarm_messages import SwarmSpawnRequest, SwarmTask

WHOLE = """\
swarm: tidy-up
budget_usd: 2.00
concurrency: 4
isolation: worktree
permissions: edit
verify: [make test]
cwd: backend
uncommitted: yes
carry: [.env]
retries: 1
tasks:
  - {id: api, prompt: "Mend it.", provider: glm, files: [src/api.py], after: [], verify: [pytest -q]}
  - id: docs
    prompt: |
      Describe it,
      and give an example.
    after: api
    model: kimi-k2
    method: agent
    allowed_tools: [Read, Grep]
    isolation: copy
    permissions: auto
    budget_usd: 0.5
    timeout_s: 60
    allow_fallback: true
  - {id: best, task: "Race.", race: [glm, kimi], staged: true}
"""

MISTAKES = [
    ("tasks: [{id: a, promt: x}]", "1: tasks[0].promt: unknown key; did you mean 'prompt'?"),
    ("concurency: 2", "1: concurency: unknown key; did you mean 'concurrency'?"),
    ("wait_s: 2", "1: wait_s: unknown key; one of tasks, swarm, budget_usd, "),
    ("swarm: x", "tasks: is missing; list what is to be done: tasks: [{id: …, task: …}]"),
    ("tasks: []", "1: tasks: has no task; write at least one {id: …, task: …}"),
    ("tasks: {id: a}", "1: tasks: expected a list, not a table"),
    ("tasks: [just do it]", "1: tasks[0]: expected a table, not 'just do it'"),
    ("tasks:\n- prompt: x", "2: tasks[0].id: is missing; give it a short name, such as 'api'"),
    (
        "tasks:\n- id: a",
        "2: tasks[0].task: is missing; write the whole task: its worker sees nothing else",
    ),
    (
        "tasks: [{id: a b, prompt: x}]",
        (
            "1: tasks[0].id: 'a b' is not an id: letters, digits, '_', '.' and '-', beginning with a "
            "letter or a digit"
        ),
    ),
    (
        "swarm: a/b\ntasks: [{id: a, prompt: x}]",
        (
            "1: swarm: 'a/b' is not a name for a swarm: letters, digits, '_' and '-', beginning with a "
            "letter or a digit"
        ),
    ),
    (f"swarm: {'x' * 61}", "1: swarm: must be at most 60 characters long, not 61"),
    ("budget_usd: 0", "1: budget_usd: must be more than 0"),
    ("budget_usd: much", "1: budget_usd: expected a number, not 'much'"),
    ("concurrency: 0", "1: concurrency: must be at least 1, not 0"),
    ("concurrency: 101", "1: concurrency: must be at most 100, not 101"),
    ("retries: 6", "1: retries: must be at most 5, not 6"),
    (
        "isolation: none",
        "1: isolation: unknown isolation 'none'; one of auto, worktree, copy, shared, dedicated",
    ),
    ("verify: {a: b}", "1: verify: expected a list of texts, not a table"),
    ("swarm: a\nswarm: b", "2: swarm: given twice, first on line 1; keep one"),
    (
        "tasks:\n- {id: a, prompt: x}\n- prompt: y\n  id: a",
        "4: tasks[1].id: 'a' is also the id of another task, on line 2",
    ),
    (
        "tasks:\n- {id: first, prompt: x}\n- {id: b, prompt: y, after: [frist]}",
        "3: tasks[1].after[0]: there is no task 'frist'; did you mean 'first'?",
    ),
    (
        "tasks: [{id: a, prompt: x, after: [b]}]",
        "1: tasks[0].after[0]: there is no task 'b'; there is no other task",
    ),
    (
        "tasks: [{id: a, prompt: x, after: a}]",
        (
            "1: tasks[0].after: these wait for one another: a -> a; none of them could begin; remove one "
            "`after`"
        ),
    ),
    (
        (
            "tasks:\n- {id: z, prompt: x, after: [a]}\n- {id: a, prompt: x, after: [b]}\n"
            "- {id: b, prompt: x, after: [c]}\n- {id: c, prompt: x, after: [a]}"
        ),
        (
            "3: tasks[1].after[0]: these wait for one another: a -> b -> c -> a; none of them could "
            "begin; remove one `after`"
        ),
    ),
    ("tasks: [", "2: invalid YAML: "),
    ("tasks: [{id: a, task: x, prompt: y}]", "1: tasks[0].prompt: 'task' says the same; keep one"),
    ("- a", "expected settings, one `key: value` a line"),
    ("", "tasks: is missing; "),
]


def mistakes(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_tasks(text, "tasks.yaml")
    return str(caught.value).splitlines()


def test_every_key_of_the_request_can_be_written():
    assert read_tasks(WHOLE, "tasks.yaml") == SwarmSpawnRequest(
        swarm="tidy-up",
        budget_usd=2.0,
        concurrency=4,
        isolation="worktree",
        permissions="edit",
        verify=("make test",),
        cwd="backend",
        uncommitted=True,
        carry=(".env",),
        retries=1,
        tasks=(
            SwarmTask(
                id="api",
                prompt="Mend it.",
                provider="glm",
                files=("src/api.py",),
                verify=("pytest -q",),
            ),
            SwarmTask(
                id="docs",
                prompt="Describe it,\nand give an example.",
                after=("api",),
                model="kimi-k2",
                method="agent",
                allowed_tools=("Read", "Grep"),
                isolation="copy",
                permissions="auto",
                budget_usd=0.5,
                timeout_s=60.0,
                allow_fallback=True,
            ),
            SwarmTask(id="best", prompt="Race.", race=("glm", "kimi"), staged=True),
        ),
    )


def test_no_tools_is_not_the_same_as_all_of_them():
    read = read_tasks("tasks: [{id: a, prompt: x, allowed_tools: []}]", "tasks.yaml")
    assert read.tasks[0].allowed_tools == ()
    read = read_tasks("tasks: [{id: a, prompt: x}]", "tasks.yaml")
    assert read.tasks[0].allowed_tools is None


def test_no_key_of_the_request_is_forgotten():
    known = {"wait_s"}  # the command waits by itself
    asked = [*SwarmSpawnRequest.__struct_fields__, *SwarmTask.__struct_fields__]
    assert [key for key in asked if f"{key}:" not in WHOLE and key not in known] == []


def test_what_is_left_out_has_its_default():
    read = read_tasks("tasks: [{id: a, prompt: x}]", "tasks.yaml")
    assert read == SwarmSpawnRequest(tasks=(SwarmTask(id="a", prompt="x"),))


def test_task_and_prompt_mean_the_same():
    by_task = read_tasks("tasks: [{id: a, task: x}]", "tasks.yaml")
    assert by_task == read_tasks("tasks: [{id: a, prompt: x}]", "tasks.yaml")


def test_json_is_read_as_well():
    read = read_tasks('{"tasks": [{"id": "a", "prompt": "x\\ny", "after": []}]}', "tasks.json")
    assert read.tasks == (SwarmTask(id="a", prompt="x\ny"),)


@pytest.mark.parametrize(("text", "told"), MISTAKES, ids=[told for _, told in MISTAKES])
def test_a_mistake_names_its_place_and_the_remedy(text: str, told: str):
    place = "tasks.yaml:" if told[0].isdigit() else "tasks.yaml: "
    assert any(line.startswith(f"{place}{told}") for line in mistakes(text)), mistakes(text)


def test_all_mistakes_are_told_at_once():
    found = mistakes("budget: 1\ntasks:\n- {id: a, prompt: x, after: [b]}\n- {id: a}")
    assert [line.partition(" ")[0] for line in found] == [
        "tasks.yaml:1:",
        "tasks.yaml:3:",
        "tasks.yaml:4:",
        "tasks.yaml:4:",
    ]


def test_a_diamond_is_no_circle():
    tasks = "\n".join(
        f"- {{id: {name}, prompt: x, after: [{after}]}}"
        for name, after in (("d", "b, c"), ("b", "a"), ("c", "a"), ("a", ""))
    )
    assert len(read_tasks(f"tasks:\n{tasks}", "tasks.yaml").tasks) == 4


def test_a_long_chain_is_no_trouble():
    tasks = "".join(f"- {{id: t{n}, prompt: x, after: [t{n + 1}]}}\n" for n in range(3000))
    read = read_tasks(f"tasks:\n{tasks}- {{id: t3000, prompt: x}}", "tasks.yaml")
    assert len(read.tasks) == 3001
