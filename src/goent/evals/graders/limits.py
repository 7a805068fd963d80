"""Did the attempt stay within its time, money and tokens? What is unknown did not."""

from collections.abc import Sequence

import msgspec

from goent.domain.types import Value
from goent.evals.graders.findings import (
    Finding,
    Look,
    Misfit,
    all_of,
    failed,
    passed,
    share,
    unseen,
)
from goent.evals.graders.settings import CostLimit, LatencyLimit, Metrics, TokenLimits, read
from goent.evals.grades import Assertion
from goent.evals.traces import TokenUsage, Trace

_EXPLORING = frozenset(
    {"read", "grep", "glob", "search", "list", "ls", "websearch", "webfetch", "codesearch"}
)


class _Limit(Value, frozen=True, kw_only=True):
    what: str
    value: float | None
    most: float | None
    caveat: str = ""


def latency(look: Look) -> Finding:
    limit = read(look.spec, LatencyLimit).threshold
    return _kept([_Limit(what="ms", value=look.trace.duration_ms, most=limit)])


def cost(look: Look) -> Finding:
    limit = read(look.spec, CostLimit).budget
    return _kept([_Limit(what="USD", value=look.trace.cost_usd, most=limit)])


def token_usage(look: Look) -> Finding:
    limits, usage = read(look.spec, TokenLimits), look.trace.usage
    every = (
        _Limit(what="tokens", value=usage and _all(usage), most=limits.max_total),
        _Limit(what="input tokens", value=usage and usage.input, most=limits.max_input),
        _Limit(what="output tokens", value=usage and usage.output, most=limits.max_output),
    )
    return _kept(_some(look, every))


def execution_metrics(look: Look) -> Finding:
    """The share of limits that were kept. AgentV leaves cached tokens out here, and only here."""
    limits, trace = read(look.spec, Metrics), look.trace
    usage = trace.usage
    tokens = usage and (usage.input + usage.output if look.compat else _all(usage))
    calls = len(trace.all_calls) if trace.messages else None
    every = (
        _Limit(what="tool calls", value=calls, most=limits.max_tool_calls, caveat=unseen(look)),
        _Limit(what="model calls", value=llm_calls(trace), most=limits.max_llm_calls),
        _Limit(what="tokens", value=tokens, most=limits.max_tokens),
        _Limit(what="USD", value=trace.cost_usd, most=limits.max_cost_usd),
        _Limit(what="ms", value=trace.duration_ms, most=limits.max_duration_ms),
    )
    wanted = limits.target_exploration_ratio
    set_ones = _some(look, every, alone=wanted is None)
    explored = () if wanted is None else (_explored(look, wanted, limits.exploration_tolerance),)
    checks = (*map(_checked, set_ones), *explored)
    unknown = _unknown(set_ones) or bool(explored and not trace.all_calls)
    return Finding(score=share(checks), assertions=checks, broken=unknown)


def _kept(limits: Sequence[_Limit]) -> Finding:
    """What is not known cannot be turned round: its contrary is not known either."""
    found = all_of([_checked(limit) for limit in limits])
    return msgspec.structs.replace(found, broken=_unknown(limits))


def _unknown(limits: Sequence[_Limit]) -> bool:
    return any(limit.value is None for limit in limits)


def _all(usage: TokenUsage) -> int:
    return usage.input + usage.output + usage.cached


def _some(look: Look, limits: Sequence[_Limit], *, alone: bool = True) -> Sequence[_Limit]:
    """Those that are set; `alone`: nothing else is looked at."""
    found = [limit for limit in limits if limit.most is not None]
    if not found and alone and not look.compat:
        raise Misfit(f"Grader {look.spec.name!r} ({look.spec.type}) has no limit to check.")
    return found


def _checked(limit: _Limit) -> Assertion:
    most = 0.0 if limit.most is None else limit.most
    if limit.value is None:
        return failed(f"It is not known how many {limit.what} it took (at most {most:g})")
    what = limit.what.removesuffix("s") if limit.value == 1 and limit.what != "ms" else limit.what
    text = f"{limit.value:g} {what}, at most {most:g}{limit.caveat}"
    return passed(text) if limit.value <= most else failed(text)


def llm_calls(trace: Trace) -> int | None:
    """As the target counts them; else, as AgentV does, a message of the agent is one."""
    if trace.llm_calls is not None:
        return trace.llm_calls
    return sum(message.role == "assistant" for message in trace.messages) or None


def _explored(look: Look, target: float, tolerance: float) -> Assertion:
    calls = [call for _, call in look.trace.all_calls]
    if not calls:
        return failed("No tool was called, so nothing is known of exploration")
    ratio = sum(call.tool.casefold() in _EXPLORING for call in calls) / len(calls)
    text = f"{ratio:.2f} of the calls explored, {target:g} ± {tolerance:g} wanted{unseen(look)}"
    return passed(text) if abs(ratio - target) <= tolerance else failed(text)
