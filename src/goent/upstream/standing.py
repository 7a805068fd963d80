"""What is said when nobody can be asked?"""

from collections.abc import Mapping
from datetime import UTC, datetime

from goent.domain.errors import (
    AuthRefused,
    OutOfCredit,
    ProviderDown,
    ProviderUnavailable,
    RateLimited,
    WorkerError,
)
from goent.domain.health import Condition, Healths, HealthState
from goent.upstream.course import Course

_WORDS: Mapping[HealthState, str] = {
    "failing": "failing",
    "limited": "rate limited",
    "down": "down",
    "refused": "refusing its key",
    "no_credit": "out of credit",
}
_UNAVAILABLE: Mapping[HealthState, type[ProviderUnavailable]] = {
    "limited": RateLimited,
    "no_credit": OutOfCredit,
}


def words(condition: Condition, now: float) -> str:
    """How it is, until when and why; for people."""
    what = _WORDS.get(condition.state, condition.state)
    if condition.until and condition.until > now:
        moment = datetime.fromtimestamp(condition.until, UTC)
        what += f" until {moment:%Y-%m-%d %H:%M:%S} UTC"
    return f"{what} ({condition.reason})" if condition.reason else what


def out_of_service(course: Course, healths: Healths, now: float) -> WorkerError:
    """The error for a call that went to nobody; the kind is that of the one that was asked for."""
    conditions = [(target, healths.condition(target.provider)) for target in course.targets]
    told = "; ".join(f"{target.name} is {words(each, now)}" for target, each in conditions)
    first, state = course.targets[0].name, conditions[0][1].state
    message = (
        f"{told}; nobody was asked. Wait, name another provider, or forget it with "
        f"`go-ent providers reset {first}`"
    )
    if state == "refused":
        return AuthRefused(message)
    until = conditions[0][1].until
    after = None if until is None else max(0.0, until - now)
    return _UNAVAILABLE.get(state, ProviderDown)(message, retry_after_s=after)
