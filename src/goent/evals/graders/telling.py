"""What is a script told of an attempt? JSON, under the names of both dialects that fit.

AgentV 4 tells most of it twice: beside each other, and once more as `trace`, which has all events.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from goent.evals.graders.findings import Look
from goent.evals.graders.limits import llm_calls
from goent.evals.traces import Trace, TracedCall, TracedMessage

LONGEST: Final = 50_000  # characters of an answer that is told on standard input
SCHEMA: Final = "agentv.trajectory.v1"


def payload(look: Look, config: object, folder: Path) -> Mapping[str, object]:
    """A long answer is not in it, but in a file of `folder`, as `output_path`."""
    case, trace = look.case, look.trace
    said = [{"role": one.role, "content": one.text} for one in case.input]
    summary = _summary(trace)
    told: dict[str, object] = {
        "criteria": case.criteria,
        "expected_output": case.expected,
        **_output(trace.answer, folder),
        "messages": trace.messages,
        "input": said,
        "input_files": [str(path) for one in case.input for path in one.files],
        "metadata": case.metadata,
        "trace": _trace(look, summary),
        "trace_summary": summary,
        **_metrics(trace),
        "start_time": trace.start_time,
        "end_time": trace.end_time,
        "file_changes": trace.file_changes,
        "workspace_path": trace.workspace_path,
        "config": config,
    }
    if case.form == "seed":
        told |= {
            "question": case.input[-1].text if case.input else "",
            "expected_outcome": case.criteria,
            "expected_messages": case.expected,
            "reference_answer": case.expected[-1].content if case.expected else "",
            "candidate_answer": trace.answer,
            "output_messages": trace.messages,
            "input_messages": said,
            "guideline_files": [str(path) for path in case.guidelines],
            "trace_summary": {
                **summary,
                "tool_names": sorted({call.tool for _, call in trace.all_calls}),
                "tool_calls_by_name": summary["tool_calls"],
                **_metrics(trace),
            },
        }
    return told


def _output(answer: str, folder: Path) -> Mapping[str, object]:
    if len(answer) <= LONGEST:
        return {"output": answer}
    path = folder / "output.txt"
    path.write_text(answer, encoding="utf-8")
    return {"output": None, "output_path": str(path)}


def _metrics(trace: Trace) -> Mapping[str, object]:
    return {
        "token_usage": trace.usage,
        "cost_usd": trace.cost_usd,
        "duration_ms": trace.duration_ms,
    }


def _summary(trace: Trace) -> Mapping[str, object]:
    """`tool_durations` are of those calls of which it is known."""
    counts: dict[str, int] = {}
    durations: dict[str, list[float]] = {}
    calls = [call for _, call in trace.all_calls]
    for call in calls:
        counts[call.tool] = counts.get(call.tool, 0) + 1
        if call.duration_ms is not None:
            durations.setdefault(call.tool, []).append(call.duration_ms)
    return {
        "event_count": len(calls),
        "tool_calls": counts,
        "tool_durations": durations,
        "error_count": sum(call.status in ("error", "timeout") for call in calls),
        "llm_call_count": llm_calls(trace),
    }


def _trace(look: Look, summary: Mapping[str, object]) -> Mapping[str, object]:
    """The whole attempt, from what was asked on; a conversation has that in its messages already."""
    trace = look.trace
    messages = trace.messages
    if not any(message.role in ("user", "system") for message in messages):
        asked = (TracedMessage(role=one.role, content=one.text) for one in look.case.input)
        messages = (*asked, *messages)
    events = [{"ordinal": i, **event} for i, event in enumerate(_events(messages))]
    return {
        "schema_version": SCHEMA,
        **summary,
        "messages": messages,
        "events": events,
        **_metrics(trace),
        "start_time": trace.start_time,
        "end_time": trace.end_time,
        "metadata": {"eval_case_id": look.case.id},
    }


def _events(messages: Sequence[TracedMessage]) -> Iterator[Mapping[str, object]]:
    """Each message, its calls, and what came of them; the agent's last words once more at the end."""
    final: Mapping[str, object] | None = None
    for number, message in enumerate(messages):
        own = f"message-{number}"
        said = {"role": message.role, "content": message.content}
        yield {
            "event_id": own,
            "type": "message",
            "timestamp": message.start_time,
            "message": said,
        }
        for place, call in enumerate(message.tool_calls):
            yield from _called(call, own, f"{own}-tool-{place}")
        if message.role == "assistant" and message.parent is None and message.content:
            final = {
                "event_id": "final-response",
                "parent_event_id": own,
                "type": "final_response",
                "timestamp": message.end_time or message.start_time,
                "message": said,
            }
    if final:
        yield final


def _called(call: TracedCall, message: str, own: str) -> Iterator[Mapping[str, object]]:
    tool = {"name": call.tool, "call_id": call.id, "status": call.status}
    yield {
        "event_id": own,
        "parent_event_id": message,
        "type": "tool_call",
        "timestamp": call.start_time,
        "duration_ms": call.duration_ms,
        "tool": {**tool, "input": call.input, "output": call.output},
    }
    if call.output is not None:
        yield {
            "event_id": f"{own}-result",
            "parent_event_id": own,
            "type": "tool_result",
            "timestamp": call.end_time,
            "tool": {**tool, "output": call.output},
        }
