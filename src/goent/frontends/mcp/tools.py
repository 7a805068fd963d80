"""How each operation is described to a model, and the schemas that go with it."""

import json
from typing import Any

import msgspec
from mcp import types

from goent.core.operation import Operation

INSTRUCTIONS = """\
go-ent runs coding workers on other models (GLM, Kimi, DeepSeek, …) beside you. Hand over work \
that is well described and can be checked; keep what needs this conversation.
worker_spawn returns at once with a worker_id. Say the whole task: a worker sees only what you \
write and the files in its directory. Spawn several before you wait. Then worker_wait (it returns \
when they end, or when one asks for a permission: answer with worker_answer), then worker_result.
Several tasks that can go side by side are a swarm: swarm_spawn gives each worker a worktree of its \
own, and a task starts from the merged work of those it comes after. Cut the tasks so that no two \
edit the same lines, and give verify commands. Then swarm_wait, swarm_result (it tells conflicts and \
the order that merges the most), swarm_retry for what failed, and swarm_merge.
Evidence is "claimed" unless verify commands ran: pass verify, or check yourself. "refuted" means that \
the work is not done, also where the state is "completed". \
Workers live on when this session ends; worker_list finds them again."""

DESCRIPTIONS = {
    "worker_spawn": "Hand a task to a new worker and return its id at once. provider, model and "
    "method are pins: obeyed, or refused with the reason; leave them out, and go-ent chooses. "
    "provider_list shows what there is.",
    "worker_prompt": "Give an open worker a further prompt; it remembers its earlier turns. "
    "Refused while a turn runs unless queue is true.",
    "worker_status": "A worker's state, evidence, current step, progress, open permission question, tokens "
    "and cost so far.",
    "worker_output": "What a worker said and did, as text. since_last gives only what you have "
    "not had yet; cursor continues an earlier reply.",
    "worker_wait": "Wait until all workers (or any) have ended their turn, at most timeout_s. "
    "Returns early when one needs a permission: answer it, then wait again.",
    "worker_result": "What came of a worker's task: its last message, changed files, commands, "
    "verification, tokens, cost and failure.",
    "worker_answer": "Answer a worker's open permission question. reject usually ends its turn; the "
    "worker stays open. reject with a message says what to do instead, and the turn goes on. "
    "allow_always writes the rule that the question names as always.",
    "worker_cancel": "Stop a worker's turn and return what it had done. Edits stay. The worker "
    "stays open for another prompt unless close is true.",
    "worker_list": "All workers of this project, newest first, with their status.",
    "provider_list": "The providers and models that workers can run on, with price, context "
    "window, health (and until when one is out), and how much they are in use.",
    "provider_recommend": "Who should get a task and why, what it will probably cost and take, the "
    "alternatives, and whether to delegate or split it at all. Nothing is begun.",
    "swarm_spawn": "Hand over several tasks at once and return at once. Each gets a worker in a git "
    "worktree of its own; `after` names tasks whose merged work it starts from. verify commands run "
    "in each worker's folder and on the merge. Nothing of the checkout is touched. One budget holds "
    "for all.",
    "swarm_status": "How a swarm stands: each task's state, evidence, provider, step, tokens, cost and time.",
    "swarm_wait": "Wait until every task of a swarm is over, at most timeout_s. Returns early when a "
    "worker needs a permission: answer with worker_answer, then wait again.",
    "swarm_result": "What came of a swarm, short: per task state, evidence, lines changed and cost; "
    "totals by provider; failures; conflicts with their hunks; the order that merges the most. "
    "whole: all of it, however long. More of one worker: worker_result.",
    "swarm_retry": "Give the failed tasks of a swarm (or those named) to new workers; elsewhere: on "
    "another provider than before. Tasks that were blocked by them follow.",
    "swarm_cancel": "Stop a swarm, or some of its tasks, and begin nothing more. Finished work stays "
    "and can be merged.",
    "swarm_merge": "Join the finished work on an integration branch, run the verify commands on it, "
    "and tell what was left out and how to resolve it. The checkout stays as it is unless apply is "
    "true. dry_run only tells what would be merged.",
    "agent_spawn_acp": "Hand a task to a new worker on go-ent's own agent: quick to start, its tools "
    "and its model of your choice. Returns its id at once; then as any worker (worker_wait, "
    "worker_answer, worker_result).",
    "agent_prompt_acp": "Give a worker on an agent a further prompt; it remembers its earlier "
    "turns.",
    "agent_cancel_acp": "Stop the turn of a worker on an agent and return what it had done. It "
    "stays open for another prompt.",
    "eval_run": "Test providers, models or prompts with a suite of cases: run it in the background and "
    "return its run_id at once. Targets are in .goent/targets.yaml. Then eval_status; what it costs is real "
    "money unless the targets are mock, replay or cli.",
    "eval_status": "How an evaluation stands: trials done, passed, failed, errors, cost, the latest "
    "failures. wait_s waits for its end; cancel ends it.",
    "eval_compare": "Is one evaluation better than another, beyond what chance explains? Case by case.",
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
    "swarm_status",
    "swarm_wait",
    "swarm_result",
    "eval_compare",
    "cost_report",
}
DESTRUCTIVE = {"worker_cancel", "swarm_cancel", "agent_cancel_acp", "eval_status"}
OPEN_WORLD = {
    "worker_spawn",
    "worker_prompt",
    "swarm_spawn",
    "swarm_retry",
    "agent_spawn_acp",
    "agent_prompt_acp",
    "eval_run",
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
            destructive_hint=name in DESTRUCTIVE,
            open_world_hint=name in OPEN_WORLD,
        ),
    )


def schema(kind: type) -> dict[str, Any]:
    """A JSON schema whose root is the object itself, and that reads alike in draft-07 and 2020-12.

    Many clients validate by draft-07, whatever the server says: the TypeScript SDK v1 does.
    """
    (_,), components = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    root = {**components.pop(kind.__name__)}
    for key in ("title", "description"):
        root.pop(key, None)
    whole = {**root, "$defs": components} if components else root
    return json.loads(msgspec.json.encode(whole), object_hook=_without_tuple)


def _without_tuple(part: dict[str, Any]) -> dict[str, Any]:
    """An array of a fixed length instead of `prefixItems`.

    Draft-07 does not know that word, and reads the `items: false` beside it as "never any items".
    """
    kinds = part.pop("prefixItems", None)
    if kinds:
        same = all(kind == kinds[0] for kind in kinds)
        part["items"] = kinds[0] if same else {"anyOf": kinds}
    return part
