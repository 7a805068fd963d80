"""Grades by a script that reads JSON about the attempt and prints a score.

As in AgentV 4, most of the JSON is in it twice: at the top, and in `trace`, which has all events.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import msgspec

from goent.domain.errors import WorkerCrashed
from goent.domain.types import Value
from goent.evals.eval_results import Assertion
from goent.evals.graders.composite_grader import aggregator_settings
from goent.evals.graders.findings import (
    GraderFinding,
    GraderInput,
    InvalidGrader,
    broken_finding,
    passed_share,
)
from goent.evals.graders.grader_kind import (
    GraderKind,
    GraderSettings,
    GraderTools,
    read_grader_settings,
)
from goent.evals.graders.judge_prompt import shorten
from goent.evals.graders.trace_graders import llm_calls
from goent.evals.suite_commands import SuiteCommand
from goent.evals.traces import Trace, TracedCall, TracedMessage
from goent.proc.child_process import MAX_OUTPUT, CompletedCommand
from goent.system.plain_files import read_plain

LONGEST_INLINE_OUTPUT: Final = 50_000  # characters of an answer on standard input
LARGEST_SCRIPT: Final = 1024 * 1024  # bytes; anything larger is a program
SHOWN_OUTPUT: Final = 2_000  # characters of a script's output
TRAJECTORY_SCHEMA: Final = "agentv.trajectory.v1"
WORKSPACE_REMOVED: Final = (
    "the directory of the attempt, which it needs, was removed: "
    "run the case again, with --keep-workspaces always."
)
WORKSPACE_VARIABLES: Final = ("GOENT_WORKSPACE_PATH", "AGENTV_WORKSPACE_PATH")
_INTERPRETER: Final = re.compile(r"python[\d.]*|node|bun|deno|ruby|perl|(?:ba|da|z)?sh")
_SCRIPT_ENDINGS: Final = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".sh")


class ScriptSettings(GraderSettings, frozen=True, kw_only=True):
    """A relative `cwd` starts from the suite's folder, where scripts run by default."""

    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    cwd: str = "."
    timeout_seconds: float = 60.0
    config: object = None


class _ScriptOpinion(Value, frozen=True, kw_only=True):
    score: float | None = None
    assertions: tuple[Assertion, ...] = ()
    hits: tuple[str, ...] = ()
    misses: tuple[str, ...] = ()
    details: object = None


def check_script(look: GraderInput) -> None:
    """Raises `InvalidGrader` for a missing folder, program path or script."""
    script = read_grader_settings(look.spec, ScriptSettings)
    folder = _script_folder(script, look)
    if not os.path.isdir(folder):  # noqa: PTH112 (a Path raises for a name that is too long)
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: there is no folder {str(folder)!r}; correct `cwd`."
        )
    for name in _required_files(script.command):
        if not os.path.isfile(folder / name):  # noqa: PTH113 (the same)
            raise InvalidGrader(
                f"Grader {look.spec.name!r}: there is no file {name!r} in {str(folder)!r}; "
                "correct the path, or `cwd`."
            )


async def code_grader(look: GraderInput, tools: GraderTools) -> GraderFinding:
    """Grades by a script; a long answer is in a file in `tools.scratch`."""
    script = read_grader_settings(look.spec, ScriptSettings)
    if look.trace.workspace_removed and _uses_workspace(script, look):
        return broken_finding(
            f"{look.spec.name}: {WORKSPACE_REMOVED}", error=f"{look.spec.name}: {WORKSPACE_REMOVED}"
        )
    try:
        async with tools.turn:
            with TemporaryDirectory(prefix="goent-grader-", dir=tools.scratch) as folder:
                stdin = msgspec.json.encode(script_payload(look, script.config, Path(folder)))
                return await _run_script(script, look, stdin, tools, read_folder=Path(folder))
    except OSError as error:
        return broken_finding(f"the input of {script.command[0]!r} cannot be written: {error}")


async def code_aggregator(look: GraderInput, tools: GraderTools) -> GraderFinding:
    """Combines the grades of a composite's members by a script, which gets them by name."""
    how = aggregator_settings(look.spec)
    if not how.command:
        raise InvalidGrader(f"Grader {look.spec.name!r}: its aggregator has no `command`.")
    script = ScriptSettings(command=how.command, cwd=how.cwd, timeout_seconds=how.timeout_seconds)
    results = {grade.name: grade for grade in look.members}
    async with tools.turn:
        return await _run_script(script, look, msgspec.json.encode({"results": results}), tools)


SCRIPT_GRADERS = (
    GraderKind(
        name="code-grader",
        settings=ScriptSettings,
        aliases=("code", "code-judge", "script"),
        ask=code_grader,
        combine=code_aggregator,
        validate=check_script,
        score="what the program prints",
    ),
)


def script_payload(look: GraderInput, config: object, folder: Path) -> Mapping[str, object]:
    """The JSON on standard input. A long answer is in a file in `folder` instead, as `output_path`."""
    case, trace = look.case, look.trace
    messages = [{"role": one.role, "content": one.text} for one in case.input]
    summary = _trace_summary(trace)
    payload: dict[str, object] = {
        "criteria": case.criteria,
        "expected_output": case.expected,
        **_output_entries(trace.answer, folder),
        "messages": trace.messages,
        "input": messages,
        "input_files": [str(path) for one in case.input for path in one.files],
        "metadata": case.metadata,
        "trace": _trace_entries(look, summary),
        "trace_summary": summary,
        **_metric_entries(trace),
        "start_time": trace.start_time,
        "end_time": trace.end_time,
        "file_changes": trace.file_changes,
        "workspace_path": trace.workspace_path,
        "config": config,
    }
    if case.form == "seed":
        payload |= {
            "question": case.input[-1].text if case.input else "",
            "expected_outcome": case.criteria,
            "expected_messages": case.expected,
            "reference_answer": case.expected[-1].content if case.expected else "",
            "candidate_answer": trace.answer,
            "output_messages": trace.messages,
            "input_messages": messages,
            "guideline_files": [str(path) for path in case.guidelines],
            "trace_summary": {
                **summary,
                "tool_names": sorted({call.tool for _, call in trace.all_calls}),
                "tool_calls_by_name": summary["tool_calls"],
                **_metric_entries(trace),
            },
        }
    return payload


def _output_entries(answer: str, folder: Path) -> Mapping[str, object]:
    if len(answer) <= LONGEST_INLINE_OUTPUT:
        return {"output": answer}
    path = folder / "output.txt"
    path.write_text(answer, encoding="utf-8")
    return {"output": None, "output_path": str(path)}


def _metric_entries(trace: Trace) -> Mapping[str, object]:
    return {
        "token_usage": trace.usage,
        "cost_usd": trace.cost_usd,
        "duration_ms": trace.duration_ms,
    }


def _trace_summary(trace: Trace) -> Mapping[str, object]:
    """`tool_durations` are those that are known."""
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


def _trace_entries(look: GraderInput, summary: Mapping[str, object]) -> Mapping[str, object]:
    """The whole attempt, input included; a conversation has that in its messages already."""
    trace = look.trace
    messages = trace.messages
    if not any(message.role in ("user", "system") for message in messages):
        asked = (TracedMessage(role=one.role, content=one.text) for one in look.case.input)
        messages = (*asked, *messages)
    events = [{"ordinal": i, **event} for i, event in enumerate(_trace_events(messages))]
    return {
        "schema_version": TRAJECTORY_SCHEMA,
        **summary,
        "messages": messages,
        "events": events,
        **_metric_entries(trace),
        "start_time": trace.start_time,
        "end_time": trace.end_time,
        "metadata": {"eval_case_id": look.case.id},
    }


def _trace_events(messages: Sequence[TracedMessage]) -> Iterator[Mapping[str, object]]:
    """Each message, its calls and their results; the agent's final response again at the end."""
    final: Mapping[str, object] | None = None
    for number, message in enumerate(messages):
        own = f"message-{number}"
        said = {"role": message.role, "content": message.content}
        yield {"event_id": own, "type": "message", "timestamp": message.start_time, "message": said}
        for place, call in enumerate(message.tool_calls):
            yield from _call_events(call, own, f"{own}-tool-{place}")
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


def _call_events(call: TracedCall, message: str, own: str) -> Iterator[Mapping[str, object]]:
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


def _required_files(command: Sequence[str]) -> Iterator[str]:
    """Files of the command that must exist: an interpreter's first argument is its script."""
    if "/" in command[0]:
        yield command[0]
    if len(command) > 1 and _INTERPRETER.fullmatch(Path(command[0]).name):
        script = command[1]
        if script.endswith(_SCRIPT_ENDINGS) and not script.startswith("-"):
            yield script


def _uses_workspace(script: ScriptSettings, look: GraderInput) -> bool:
    """Whether the script or its command mentions the attempt's directory."""
    for word in script.command:
        text = word.encode(errors="replace")
        with suppress(OSError, ValueError):  # most words are not files
            text += read_plain(_script_folder(script, look) / word, LARGEST_SCRIPT)
        if b"workspace_path" in text.lower():
            return True
    return False


async def _run_script(
    script: ScriptSettings,
    look: GraderInput,
    stdin: bytes,
    tools: GraderTools,
    *,
    read_folder: Path | None = None,
) -> GraderFinding:
    """A script that fails is broken; if it cannot even be started, there is no score."""
    place = look.trace.workspace_path
    order = SuiteCommand(
        command=script.command,
        cwd=_script_folder(script, look),
        stdin=stdin,
        timeout_s=script.timeout_seconds,
        workspace=Path(place) if place else None,
        read_paths=(
            *(path for one in look.case.input for path in one.files),
            *look.case.guidelines,
        ),
        read_folder=read_folder,
        env=dict.fromkeys(WORKSPACE_VARIABLES, place) if place else {},
    )
    try:
        ran = await tools.commands.run(order)
    except WorkerCrashed as error:
        return broken_finding(str(error), error="" if look.compat else str(error))
    done = ran.completed
    if done.exit is None:
        return broken_finding(
            f"{script.command[0]!r} ran for more than {script.timeout_seconds:g} s."
        )
    if ran.hint and done.errors:
        done = msgspec.structs.replace(done, errors=f"{done.errors}\n{ran.hint}")
    return script_finding(done, compat=look.compat)


def _script_folder(script: ScriptSettings, look: GraderInput) -> Path:
    return Path(look.case.place.file).parent.absolute() / script.cwd


def script_finding(done: CompletedCommand, *, compat: bool) -> GraderFinding:
    """JSON with a score, or with assertions; otherwise the exit status decides."""
    said = done.output.strip()
    if len(done.output.encode()) >= MAX_OUTPUT:
        return broken_finding(f"It printed more than {MAX_OUTPUT} bytes; {_shortened(said)}")
    if not compat:
        return _strict_finding(done, said)
    parsed = _parse_opinion(said)
    if done.exit != 0 and (isinstance(parsed, _ScriptOpinion) or done.errors or not said):
        return _crash_finding(done, said)
    if isinstance(parsed, _ScriptOpinion):
        return _score_finding(parsed, compat=True)
    return _text_finding(float(done.exit == 0), said)


def _strict_finding(done: CompletedCommand, said: str) -> GraderFinding:
    """The exit status decides only for plain text: a crash, or JSON, is not a verdict.

    A silent exit with 1 is a no, as with `grep -q`.
    """
    verdict = _json_part(said)
    if done.exit == 1 and not said and not done.errors:
        return _text_finding(0.0, "It ended with 1.")
    if done.exit != 0 and (done.exit is None or done.exit < 0 or done.errors or not said):
        return _crash_finding(done, said)
    if verdict is None:
        return _text_finding(float(done.exit == 0), said)
    if done.exit != 0:
        return _crash_finding(done, said)
    score = _bare_score(verdict)
    if score is not None:
        return _text_finding(score, said) if 0 <= score <= 1 else _out_of_range(score)
    parsed = _parse_opinion(verdict)
    if isinstance(parsed, _ScriptOpinion):
        return _score_finding(parsed, compat=False)
    return broken_finding(f"Its JSON has the wrong form ({parsed}): {_shortened(said)}")


def _json_part(said: str) -> str | None:
    """What is meant as JSON: all of it, or from the last line that opens an object."""
    if said.startswith("{") or _is_json(said):
        return said
    start = said.rfind("\n{")
    if start >= 0:
        return said[start + 1 :]
    return said if any(line.lstrip().startswith("{") for line in said.splitlines()) else None


def _crash_finding(done: CompletedCommand, said: str) -> GraderFinding:
    return broken_finding(f"It ended with {done.exit}: {_shortened(done.errors or said)}")


def _text_finding(score: float, said: str) -> GraderFinding:
    return GraderFinding(
        score=score, assertions=(Assertion(text=_shortened(said), passed=score > 0),)
    )


def _score_finding(parsed: _ScriptOpinion, *, compat: bool) -> GraderFinding:
    """AgentV clamps a score to 0 and 1; here 85 is an error, not the best score."""
    every = (
        *parsed.assertions,
        *(Assertion(text=text, passed=True) for text in parsed.hits),
        *(Assertion(text=text, passed=False) for text in parsed.misses),
    )
    score = parsed.score
    if score is None:
        if not every and not compat:
            return broken_finding("Its JSON has neither `score` nor `assertions`.")
        score = passed_share(every) if every else 0.0
    if not compat and not 0 <= score <= 1:
        return _out_of_range(score)
    return GraderFinding(score=score, assertions=every, details=parsed.details)


def _out_of_range(score: float) -> GraderFinding:
    return broken_finding(f"Its score is {score:g}; a score is from 0 to 1.")


def _shortened(text: str) -> str:
    return shorten(text, SHOWN_OUTPUT)


def _parse_opinion(said: str) -> _ScriptOpinion | str:
    """The opinion, or why it is not one."""
    try:
        return msgspec.json.decode(said, type=_ScriptOpinion)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return str(error)


def _is_json(said: str) -> bool:
    """Accepts NaN, which is meant as a number."""
    try:
        json.loads(said)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _bare_score(said: str) -> float | None:
    """The score if it is a bare number, true or false."""
    try:
        return float(msgspec.json.decode(said, type=float | bool))
    except (msgspec.DecodeError, UnicodeError):
        return None
