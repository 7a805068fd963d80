"""Grades by a script, which reads JSON about the attempt and prints its opinion.

AgentV 4 tells most of it twice: beside each other, and once more as `trace`, which has all events.
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
from goent.evals.graders.findings import (
    AsyncGrader,
    GraderFinding,
    GraderInput,
    InvalidGrader,
    broken_finding,
    passed_share,
)
from goent.evals.graders.grader_settings import (
    CompositeSettings,
    GraderSettings,
    read_grader_settings,
)
from goent.evals.graders.judge_prompt import shorten
from goent.evals.graders.trace_graders import llm_calls
from goent.evals.suite_commands import SuiteCommand, SuiteCommandRunner
from goent.evals.suites import EvalCase
from goent.evals.traces import Trace, TracedCall, TracedMessage
from goent.proc.child_process import MAX_OUTPUT, CompletedCommand
from goent.system.plain_files import read_plain

LONGEST_INLINE_OUTPUT: Final = 50_000  # characters of an answer that is told on standard input
TRAJECTORY_SCHEMA: Final = "agentv.trajectory.v1"


def script_payload(look: GraderInput, config: object, folder: Path) -> Mapping[str, object]:
    """A long answer is not in it, but in a file of `folder`, as `output_path`."""
    case, trace = look.case, look.trace
    said = [{"role": one.role, "content": one.text} for one in case.input]
    summary = _trace_summary(trace)
    told: dict[str, object] = {
        "criteria": case.criteria,
        "expected_output": case.expected,
        **_output_entries(trace.answer, folder),
        "messages": trace.messages,
        "input": said,
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
                **_metric_entries(trace),
            },
        }
    return told


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


def _trace_entries(look: GraderInput, summary: Mapping[str, object]) -> Mapping[str, object]:
    """The whole attempt, from what was asked on; a conversation has that in its messages already."""
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


LARGEST_SCRIPT: Final = 1024 * 1024  # bytes; what is larger is a program
SHOWN_OUTPUT: Final = 2_000  # of what a script said
WORKSPACE_REMOVED: Final = (
    "The directory of the attempt, which it looks at, was removed: "
    "run the case again, with --keep-workspaces always."
)
_INTERPRETER: Final = re.compile(r"python[\d.]*|node|bun|deno|ruby|perl|(?:ba|da|z)?sh")
_SCRIPT_ENDINGS: Final = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".sh")
WORKSPACE_VARIABLES: Final = ("GOENT_WORKSPACE_PATH", "AGENTV_WORKSPACE_PATH")


class ScriptSettings(GraderSettings, frozen=True, kw_only=True):
    """A relative `cwd` is seen from the suite's folder, which is where it runs otherwise."""

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
    """Raises `InvalidGrader`: also for a program of which a path is given, or a script, and that is not there."""
    script = read_grader_settings(look.spec, ScriptSettings)
    folder = _script_folder(script, look)
    if not os.path.isdir(folder):  # noqa: PTH112 (a Path raises for what is too long)
        raise InvalidGrader(
            f"Grader {look.spec.name!r}: there is no folder {str(folder)!r}; correct `cwd`."
        )
    for name in _required_files(script.command):
        if not os.path.isfile(folder / name):  # noqa: PTH113 (the same)
            raise InvalidGrader(
                f"Grader {look.spec.name!r}: there is no file {name!r} in {str(folder)!r}; "
                "correct the path, or `cwd`."
            )


def _required_files(command: Sequence[str]) -> Iterator[str]:
    """What has to be there before it starts: an interpreter takes its first word for its script."""
    if "/" in command[0]:
        yield command[0]
    if len(command) > 1 and _INTERPRETER.fullmatch(Path(command[0]).name):
        script = command[1]
        if script.endswith(_SCRIPT_ENDINGS) and not script.startswith("-"):
            yield script


def code_grader(commands: SuiteCommandRunner, scratch: Path | None = None) -> AsyncGrader:
    """Scripts are told where the attempt worked; a long answer is in a folder in `scratch`."""

    async def look_at(look: GraderInput) -> GraderFinding:
        script = read_grader_settings(look.spec, ScriptSettings)
        if look.trace.workspace_removed and _uses_workspace(script, look):
            return msgspec.structs.replace(
                broken_finding(WORKSPACE_REMOVED), error=f"{look.spec.name}: {WORKSPACE_REMOVED}"
            )
        try:
            with TemporaryDirectory(prefix="goent-grader-", dir=scratch) as folder:
                told = msgspec.json.encode(script_payload(look, script.config, Path(folder)))
                return await _run_script(script, look, told, commands, handed=Path(folder))
        except OSError as error:
            return broken_finding(
                f"{script.command[0]!r} cannot be told about the attempt: {error}"
            )

    return look_at


def _uses_workspace(script: ScriptSettings, look: GraderInput) -> bool:
    """Whether it asks for the attempt's directory, by a name that it has to spell."""
    for word in script.command:
        text = word.encode(errors="replace")
        with suppress(OSError, ValueError):  # most words are no files
            path = _script_folder(script, look) / word
            text += read_plain(path, LARGEST_SCRIPT)
        if b"workspace_path" in text.lower():
            return True
    return False


def code_aggregator(commands: SuiteCommandRunner) -> AsyncGrader:
    """Makes one opinion of those of a composite's members, told by their names."""

    async def look_at(look: GraderInput) -> GraderFinding:
        how = read_grader_settings(look.spec, CompositeSettings).aggregator
        if not how.command:
            raise InvalidGrader(f"Grader {look.spec.name!r}: its aggregator has no `command`.")
        script = ScriptSettings(
            command=how.command, cwd=how.cwd, timeout_seconds=how.timeout_seconds
        )
        results = {grade.name: grade for grade in look.members}
        return await _run_script(script, look, msgspec.json.encode({"results": results}), commands)

    return look_at


async def _run_script(
    script: ScriptSettings,
    look: GraderInput,
    told: bytes,
    commands: SuiteCommandRunner,
    *,
    handed: Path | None = None,
) -> GraderFinding:
    """A script that cannot say anything is broken, and harms nobody else.

    One that cannot even be started has not looked at the attempt: there is no score.
    """
    place = look.trace.workspace_path
    order = SuiteCommand(
        command=script.command,
        cwd=_script_folder(script, look),
        stdin=told,
        timeout_s=script.timeout_seconds,
        workspace=Path(place) if place else None,
        read_paths=_case_files(look.case),
        read_folder=handed,
        env=dict.fromkeys(WORKSPACE_VARIABLES, place) if place else {},
    )
    try:
        ran = await commands.run(order)
    except WorkerCrashed as error:
        found = broken_finding(str(error))
        return found if look.compat else msgspec.structs.replace(found, error=str(error))
    done = ran.completed
    if done.exit is None:
        return broken_finding(
            f"{script.command[0]!r} ran for more than {script.timeout_seconds:g} s."
        )
    if ran.hint and done.errors:
        done = msgspec.structs.replace(done, errors=f"{done.errors}\n{ran.hint}")
    return script_finding(done, compat=look.compat)


def _case_files(case: EvalCase) -> tuple[Path, ...]:
    """What a script may want to look at: it is told their names."""
    return (*(path for said in case.input for path in said.files), *case.guidelines)


def _script_folder(script: ScriptSettings, look: GraderInput) -> Path:
    return Path(look.case.place.file).parent.absolute() / script.cwd


def script_finding(done: CompletedCommand, *, compat: bool) -> GraderFinding:
    """JSON with a score, or with assertions to take it from; else the exit status decides."""
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
    """Only text is judged by the exit status: whoever crashed, or speaks JSON, did not mean that.

    A silent 1 is a no, as of `grep -q`.
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
    return broken_finding(f"Its JSON is no opinion ({parsed}): {_shortened(said)}")


def _json_part(said: str) -> str | None:
    """What is JSON or wants to be: all of it, or from the last line on that opens an object."""
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
    """AgentV cuts a score to 0 and 1; here 85 is taken for a mistake, not for the best."""
    hits = tuple(Assertion(text=text, passed=True) for text in parsed.hits)
    misses = tuple(Assertion(text=text, passed=False) for text in parsed.misses)
    every = (*parsed.assertions, *hits, *misses)
    score = parsed.score
    if score is None:
        if not every and not compat:
            return broken_finding("It says nothing: neither `score` nor `assertions`.")
        score = passed_share(every) if every else 0.0
    if not compat and not 0 <= score <= 1:
        return _out_of_range(score)
    return GraderFinding(score=score, assertions=every, details=parsed.details)


def _out_of_range(score: float) -> GraderFinding:
    return broken_finding(f"It says {score:g}, and a score is from 0 to 1.")


def _shortened(text: str) -> str:
    return shorten(text, SHOWN_OUTPUT)


def _parse_opinion(said: str) -> _ScriptOpinion | str:
    """Or why it is none."""
    try:
        return msgspec.json.decode(said, type=_ScriptOpinion)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return str(error)


def _is_json(said: str) -> bool:
    """NaN is not, but whoever prints it means a number."""
    try:
        json.loads(said)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _bare_score(said: str) -> float | None:
    """A number, or a yes or no."""
    try:
        return float(msgspec.json.decode(said, type=float | bool))
    except (msgspec.DecodeError, UnicodeError):
        return None
