"""What a person can ask for by name in an MCP client: `/mcp__go-ent__delegate` in Claude Code."""

from mcp import types

from goent.frontends.mcp.asking import Context
from goent.frontends.mcp.resources import first_page, invalid

DELEGATE = types.Prompt(
    name="delegate",
    title="Delegate a task",
    description="Hand a task to a go-ent worker, and check what comes back.",
    arguments=[
        types.PromptArgument(name="task", description="What is to be done.", required=True),
        types.PromptArgument(
            name="provider", description="Which provider; default: go-ent's.", required=False
        ),
    ],
)
TEXT = """\
Hand this task to a go-ent worker, and tell me what came of it:

{task}

1. Write the task out whole: the worker sees neither this conversation nor your earlier findings. \
Say what is wanted, where (paths), what must stay as it is, and how to tell that it is done.
2. Find the commands that prove it (tests, a build, a linter) and pass them as verify. Without \
them the result is only claimed.
3. worker_spawn with {pin}task, files that matter, and verify. If the task falls into parts that do not touch \
the same files, spawn one worker for each before you wait.
4. worker_wait. When a worker is waiting for a permission, look at the command or the edit, \
and answer with worker_answer; if it is not plainly part of the task, ask me first. Then wait again.
5. worker_result. Look at evidence, files and verify; read the changes yourself where nothing \
was verified. If something is missing, worker_prompt the same worker: it remembers its work.
6. Tell me what was done, what proves it, what is open, and what it cost."""


async def list_prompts(
    _: Context, params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    first_page(params)
    return types.ListPromptsResult(prompts=[DELEGATE])


async def get_prompt(_: Context, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    if params.name != DELEGATE.name:
        raise invalid(f"unknown prompt {params.name!r}; there is: {DELEGATE.name}")
    given = params.arguments or {}
    task, provider = given.get("task", "").strip(), given.get("provider", "").strip()
    if not task:
        raise invalid("delegate needs an argument 'task': what is to be done")
    text = TEXT.format(task=task, pin=f"provider {provider!r}, " if provider else "")
    return types.GetPromptResult(
        description=DELEGATE.description,
        messages=[types.PromptMessage(role="user", content=types.TextContent(text=text))],
    )
