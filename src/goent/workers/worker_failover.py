"""Plans how a failed turn continues with another provider, and describes failures.

The gateway fails over model calls that pass through it. This covers the rest: a provider that
OpenCode calls directly, and a program that crashes or breaks its protocol. The next fallback
continues in the same directory, in the same session if that survived, otherwise in a new one with
a brief of what was done. Nothing is repeated blindly: the brief says to look first.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from goent.domain.errors import (
    AuthRefused,
    GoentError,
    ProtocolError,
    ProviderRefused,
    ProviderUnavailable,
    UnknownModel,
    WorkerCrashed,
    WorkerError,
)
from goent.domain.events import EventEnvelope, ToolCall
from goent.domain.ports import WorkerSpec
from goent.domain.provider_condition import ProviderHealth
from goent.domain.settings import Settings
from goent.domain.types import Failure, Prompt, Provider, Value
from goent.routing.pins import fallbacks_of
from goent.routing.router import Router, RouteRequest
from goent.workers.feed import Feed
from goent.workers.views import shorten
from goent.workers.worker_report import changed_files, commands_run, last_message

INTERNAL_ERROR = "internal error"
# The provider or the program is at fault, not the work: another provider may succeed.
PROVIDER_FAULTS = (ProviderUnavailable, WorkerCrashed, ProtocolError)
OTHERS_MAY_RETRY = (*PROVIDER_FAULTS, ProviderRefused, UnknownModel)
MAX_FAILOVERS = 2  # per turn
MAX_LISTED = 30
LAST_WORDS_LIMIT = 1500
COMMAND_LIMIT = 200

LOOK_FIRST_WARNING = (
    "The last tool call may or may not have taken effect, and running commands were stopped: "
    "look before you repeat anything."
)
CONTINUE_PROMPT = (
    "This conversation was interrupted, and you are another model that continues it. The history is "
    f"complete. {LOOK_FIRST_WARNING} Then continue the task where it stopped."
)
TAKEOVER_PROMPT = (
    "You take over from a worker that failed in the middle of its task. It worked in this directory, "
    "and what it did is in place."
)
TASK_HEADING = "If you have not seen it before, this is the task:"


def as_failure(error: Exception) -> Failure:
    if isinstance(error, WorkerError):
        return Failure(kind=error.kind, message=str(error), retryable=error.retryable)
    if isinstance(error, GoentError):
        return Failure(kind="environment", message=str(error))
    return Failure(kind="internal", message=f"{INTERNAL_ERROR}: {error!r}; see the log")


class FailoverPlan(Value, frozen=True, kw_only=True):
    """How the turn continues: in which session, with which prompt and notice."""

    spec: WorkerSpec
    prompt: Prompt
    note: str


class StuckTurn(Value, frozen=True, kw_only=True):
    """A turn that cannot continue where it is. `token` resumes its session, if that survived."""

    spec: WorkerSpec
    prompt: Prompt
    token: str
    has_events: bool
    failovers: int


class FailoverPlanner:
    """Chooses who continues a failed turn, and names a provider to retry with."""

    def __init__(
        self,
        *,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
        feed: Feed,
        healths: ProviderHealth,
        router: Router,
    ) -> None:
        self._router = router
        self._settings = settings
        self._environ = environ
        self._feed = feed
        self._healths = healths

    async def record_health(
        self, spec: WorkerSpec, error: WorkerError | None, began: float
    ) -> None:
        """Record the result of a turn whose model calls bypass the gateway; None is success."""
        if not self._is_direct(spec):
            return
        if error is None:
            await self._healths.record_success(spec.provider, began=began)
        elif isinstance(error, ProviderUnavailable | AuthRefused):
            await self._healths.record_failure(spec.provider, error, began=began)

    async def plan(self, stuck: StuckTurn, error: WorkerError) -> FailoverPlan | None:
        """None if no fallback may or can continue."""
        if not isinstance(error, PROVIDER_FAULTS) or stuck.failovers >= MAX_FAILOVERS:
            return None
        if isinstance(error, ProviderUnavailable) and not self._is_direct(stuck.spec):
            return None  # the gateway has tried all fallbacks already
        chosen = next((p for p in stuck.spec.fallbacks if self._can_work(p)), None)
        if chosen is None:
            return None
        others = tuple(p for p in stuck.spec.fallbacks if p.name != chosen.name)
        spec = replace(
            stuck.spec,
            provider=chosen,
            fallbacks=others,
            asked=self._feed.view(stuck.spec.id).asked,
        )
        # A session in which two models failed is not trusted with a third.
        if not stuck.token or stuck.failovers:
            return await self.plan_new_session(stuck, spec)
        reached = stuck.has_events or isinstance(error, ProviderUnavailable)
        return FailoverPlan(
            spec=replace(spec, resume=stuck.token),
            prompt=Prompt(text=CONTINUE_PROMPT) if reached else _with_task(stuck.prompt),
            note=f"{chosen.name} continues in the same session",
        )

    async def plan_new_session(self, stuck: StuckTurn, spec: WorkerSpec) -> FailoverPlan:
        """Continue in a new session, with a brief of what the old one did."""
        events = await self._feed.all_events(spec.id)
        task = self._feed.view(spec.id).spawned.task
        return FailoverPlan(
            spec=replace(spec, resume=None),
            prompt=replace(stuck.prompt, text=takeover_brief(task, stuck.prompt.text, events)),
            note=f"{spec.provider.name} continues in a new session, with a brief of what was done",
        )

    async def failure_of(self, error: GoentError, spec: WorkerSpec) -> Failure:
        """The failure of a turn, with a provider that could take the task instead."""
        failure = as_failure(error)
        if not isinstance(error, OTHERS_MAY_RETRY) or spec.fallbacks:
            return failure
        fallbacks = fallbacks_of(spec.provider, self._settings())
        named = next((p.name for p in fallbacks if self._can_work(p)), None)
        return replace(failure, retry_with=named or await self._other_provider(error, spec))

    async def _other_provider(self, error: GoentError, spec: WorkerSpec) -> str | None:
        """The provider that the router would choose for the task now, without a pin."""
        spawned = self._feed.view(spec.id).spawned
        failed = {spec.provider.name, spawned.provider, *spawned.fallbacks}
        asked = RouteRequest(
            text=spawned.task,
            cwd=Path(spawned.cwd),
            files=spawned.files,
            budget_usd=spawned.budget_usd,
            avoid=tuple(failed),
        )
        decision = (await self._router.route(asked)).decision
        able = {each.provider.name for each in decision.candidates if not each.obstacle} - failed
        # Another model of the same account has the same trouble.
        account = None if isinstance(error, UnknownModel) else spec.provider.backend
        routes = (
            *((decision.chosen_route,) if decision.chosen_route else ()),
            *decision.alternatives,
        )
        found = (route.provider for route in routes if route.provider.backend != account)
        return next((provider.name for provider in found if provider.name in able), None)

    def _can_work(self, provider: Provider) -> bool:
        backend = self._settings().backends.get(provider.backend)
        if backend is None or self._healths.condition(provider).is_unavailable(time.time()):
            return False
        return not backend.lacks_key(self._environ())

    def _is_direct(self, spec: WorkerSpec) -> bool:
        settings = self._settings()
        if spec.method == "serve" and settings.opencode.serve_url:
            return True
        backend = settings.backends.get(spec.provider.backend)
        return backend is None or not backend.is_held(self._environ())


def takeover_brief(task: str, prompt: str, events: Sequence[EventEnvelope]) -> str:
    """The prompt for a worker that takes over in the middle of a task."""
    calls = [e.event for e in events if isinstance(e.event, ToolCall)]
    files = [f"- {change.path}" for change in changed_files(calls)]
    commands = [
        f"- {shorten(c.command, COMMAND_LIMIT)} ({_exit_text(c.exit)})" for c in commands_run(calls)
    ]
    words = last_message(events)[-LAST_WORDS_LIMIT:]
    parts = [
        f"{TAKEOVER_PROMPT} {LOOK_FIRST_WARNING}",
        f"The task:\n{task}",
        *([] if prompt == task else [f"The last prompt:\n{prompt}"]),
        *_section("Files changed so far:", files),
        *_section("Commands run so far:", commands),
        *_section("Its last message:", [words] if words else []),
    ]
    return "\n\n".join(parts)


def _section(head: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    left = len(lines) - MAX_LISTED
    more = [f"- ({left} earlier ones)"] if left > 0 else []
    return ["\n".join([head, *more, *lines[-MAX_LISTED:]])]


def _exit_text(code: int | None) -> str:
    return "exit unknown" if code is None else f"exit {code}"


def _with_task(prompt: Prompt) -> Prompt:
    return replace(prompt, text=f"{CONTINUE_PROMPT}\n\n{TASK_HEADING}\n{prompt.text}")
