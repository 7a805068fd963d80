"""Which JSON objects stand in what an agent made? A judge who quotes one of them has not said it."""

import json
from collections.abc import Iterator, Mapping

import msgspec

from goent.evals.graders.findings import Look
from goent.evals.graders.questions import AGENT, bounded
from goent.evals.graders.values import is_array, is_object

MOST_STARTS = 5_000  # places of one text at which an object is looked for
DEEPEST = 20  # objects in texts in objects


def made_by_the_agent(look: Look) -> tuple[object, ...]:
    """All that a judge is shown of it: in a conversation also what it said before this turn."""
    trace = look.trace
    earlier = [said.text for said in look.case.input if said.role == AGENT]
    calls = [part for _, call in trace.all_calls for part in (call.input, call.output)]
    members: object = msgspec.to_builtins(look.members)
    return (trace.answer, trace.file_changes, *earlier, *calls, members)


def objects_in(value: object, depth: int = 0) -> Iterator[Mapping[str, object]]:
    """At every depth, in texts too."""
    if depth > DEEPEST:
        return
    if is_object(value):
        yield value
    if isinstance(value, str):
        parts = _written_in(bounded(value))
    else:
        parts = value.values() if is_object(value) else value if is_array(value) else ()
    for part in parts:
        yield from objects_in(part, depth + 1)


def _written_in(text: str) -> Iterator[object]:
    """Also those inside of what is no JSON: who quotes may begin anywhere."""
    decoder = json.JSONDecoder()
    start = text.find("{")
    for _ in range(MOST_STARTS):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
            yield value
        except (ValueError, RecursionError):
            end = start + 1
        start = text.find("{", end)
