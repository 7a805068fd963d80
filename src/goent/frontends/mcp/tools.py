"""How each operation is described to a model, and the schemas that go with it."""

from typing import Any

import msgspec
from mcp import types

from goent.core.operations import Operation

INSTRUCTIONS = """\
go-ent runs coding workers on other models (GLM, Kimi, DeepSeek, …) beside you. Hand over work \
that is well described and can be checked; keep what needs this conversation.
worker_spawn returns at once with a worker_id. Say the whole task: a worker sees only what you \
write and the files in its directory. Spawn several before you wait. Then worker_wait (it returns \
when they end, or when one asks for a permission: answer with worker_answer), then worker_result.
A result's evidence is "claimed" unless verify commands ran: pass verify, or check yourself. \
Workers live on when this session ends; worker_list finds them again."""

DESCRIPTIONS = {
    "worker_spawn": "Hand a task to a new worker and return its id at once. provider, model and "
    "method are pins: obeyed, or refused with the reason; leave them out, and go-ent chooses. "
    "provider_list shows what there is.",
    "worker_prompt": "Give an open worker a further prompt; it remembers its earlier turns. "
    "Refused while a turn runs unless queue is true.",
    "worker_status": "A worker's state, current step, progress, open permission question, tokens "
    "and cost so far.",
    "worker_output": "What a worker said and did, as text. since_last gives only what you have "
    "not had yet; cursor continues an earlier reply.",
    "worker_wait": "Wait until all workers (or any) have ended their turn, at most timeout_s. "
    "Returns early when one needs a permission: answer it, then wait again.",
    "worker_result": "What came of a worker's task: its last message, changed files, commands, "
    "verification, tokens, cost and failure.",
    "worker_answer": "Answer a worker's open permission question. reject usually ends its turn.",
    "worker_cancel": "Stop a worker's turn and return what it had done. Edits stay. The worker "
    "stays open for another prompt unless close is true.",
    "worker_list": "All workers of this project, newest first, with their status.",
    "provider_list": "The providers and models that workers can run on, with price, context "
    "window, health (and until when one is out), and how much they are in use.",
    "provider_recommend": "Who should get a task and why, what it will probably cost and take, the "
    "alternatives, and whether to delegate or split it at all. Nothing is begun.",
    "cost_report": "Tokens and money spent, by provider, model, worker or day.",
}
READ_ONLY = {
    "worker_status",
    "worker_output",
    "worker_wait",
    "worker_result",
    "worker_list",
    "provider_list",
    "provider_recommend",
    "cost_report",
}


def tool(operation: Operation) -> types.Tool:
    name = operation.name
    return types.Tool(
        name=name,
        description=DESCRIPTIONS[name],
        input_schema=schema(operation.request),
        output_schema=schema(operation.reply),
        annotations=types.ToolAnnotations(
            read_only_hint=name in READ_ONLY,
            destructive_hint=name == "worker_cancel",
            open_world_hint=name in ("worker_spawn", "worker_prompt"),
        ),
    )


def schema(kind: type) -> dict[str, Any]:
    """A JSON schema whose root is the object itself, as MCP wants it."""
    (_,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = {**components.pop(kind.__name__)}
    for key in ("title", "description"):
        root.pop(key, None)
    return {**root, "$defs": components} if components else root
