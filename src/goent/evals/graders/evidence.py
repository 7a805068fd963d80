"""Which JSON objects stand in what an agent made? A judge who quotes one of them has not said it."""

import json
from collections.abc import Iterator, Mapping

import msgspec

from goent.evals.graders.findings import Look
from goent.evals.graders.questions import AGENT, bounded
from goent.evals.graders.values import is_array, is_object

DEEPEST = 20  # texts in objects in texts


def made_by_the_agent(look: Look) -> tuple[object, ...]:
    """All that a judge is shown of it: in a conversation also what it said before this turn."""
    trace = look.trace
    earlier = [said.text for said in look.case.input if said.role == AGENT]
    calls = [part for _, call in trace.all_calls for part in (call.input, call.output)]
    members: object = msgspec.to_builtins(look.members)
    return (trace.answer, trace.file_changes, *earlier, *calls, members)


def objects_in(value: object) -> Iterator[Mapping[str, object]]:
    """At every depth, in texts too. It may take a while: a judge's reply waits for it, and nobody else."""
    waiting = [(value, 0)]
    while waiting:
        one, depth = waiting.pop()
        if isinstance(one, str):
            if depth < DEEPEST:
                waiting += [(part, depth + 1) for part in _written_in(bounded(one))]
        elif is_object(one):
            yield one
            waiting += [(part, depth) for part in one.values()]
        elif is_array(one):
            waiting += [(part, depth) for part in one]


def _written_in(text: str) -> Iterator[object]:
    """Also those inside of what is no JSON: who quotes may begin anywhere."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
            yield value
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
