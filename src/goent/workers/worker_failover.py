"""Continues a turn with another provider when its own fails, and describes the failure.

The gateway moves model calls that pass through it. This is for the rest: a provider that OpenCode
calls by itself, and a program that crashes or breaks its protocol. The worker goes on in the same
directory with the next fallback, in the same session if that lives, else in a new one with a brief
of what was done. Nothing is repeated blindly: whoever goes on is told to look first.
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

# The provider or the program is at fault, not the work: another provider may do.
PROVIDER_FAULTS = (ProviderUnavailable, WorkerCrashed, ProtocolError)


def as_failure(error: Exception) -> Failure:
    if isinstance(error, WorkerError):
        return Failure(kind=error.kind, message=str(error), retryable=error.retryable)
    if isinstance(error, GoentError):
        return Failure(kind="environment", message=str(error))
    return Failure(kind="internal", message=f"a fault of go-ent's own: {error!r}; see the log")


OTHERS_MAY_RETRY = (*PROVIDER_FAULTS, ProviderRefused, UnknownModel)
MOST_FAILOVERS = 2  # in one turn
MOST_LISTED = 30
LAST_WORDS_LIMIT = 1500
COMMAND_LIMIT = 200

LOOK_FIRST_WARNING = (
    "The last tool call may or may not have taken effect, and commands that were running have been "
    "ended: look before you repeat anything."
)
CONTINUE_PROMPT = (
    "This conversation was interrupted, and goes on with another model: you. What was said before is "
    f"complete. {LOOK_FIRST_WARNING} Then go on with the task from where it was."
)
TAKEOVER_PROMPT = (
    "You take over from a worker that failed in the middle of its task. It worked in this directory, "
    "and what it did is in place."
)
TASK_HEADING = "If it was not said to you before, this is the task:"


class FailoverPlan(Value, frozen=True, kw_only=True):
    """How the turn goes on: where, with which prompt, and what is noted of it."""

    spec: WorkerSpec
    prompt: Prompt
    note: str


class StuckTurn(Value, frozen=True, kw_only=True):
    """A turn that cannot go on where it is. `token` opens its session again, if that lives."""

    spec: WorkerSpec
    prompt: Prompt
    token: str
    has_events: bool
    failovers: int


class FailoverPlanner:
    """Knows who else could do the work."""

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
        """What a turn tells of a provider whose calls nobody sees; None: it went well."""
        if not self._is_direct(spec):
            return
        if error is None:
            await self._healths.record_success(spec.provider, began=began)
        elif isinstance(error, ProviderUnavailable | AuthRefused):
            await self._healths.record_failure(spec.provider, error, began=began)

    async def plan(self, stuck: StuckTurn, error: WorkerError) -> FailoverPlan | None:
        """None if nobody else may or can go on."""
        if not isinstance(error, PROVIDER_FAULTS) or stuck.failovers >= MOST_FAILOVERS:
            return None
        if isinstance(error, ProviderUnavailable) and not self._is_direct(stuck.spec):
            return None  # the gateway has asked all fallbacks already
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
            note=f"{chosen.name} goes on in the same session",
        )

    async def plan_new_session(self, stuck: StuckTurn, spec: WorkerSpec) -> FailoverPlan:
        """The same in a new session, which has to be told what the old one knew."""
        events = await self._events(spec.id)
        task = self._feed.view(spec.id).spawned.task
        return FailoverPlan(
            spec=replace(spec, resume=None),
            prompt=replace(stuck.prompt, text=takeover_brief(task, stuck.prompt.text, events)),
            note=f"{spec.provider.name} goes on in a new session, with a brief of what was done",
        )

    async def failure_of(self, error: GoentError, spec: WorkerSpec) -> Failure:
        """What is said of a turn that failed, and who could take the task instead."""
        failure = as_failure(error)
        if not isinstance(error, OTHERS_MAY_RETRY) or spec.fallbacks:
            return failure
        fallbacks = fallbacks_of(spec.provider, self._settings())
        named = next((p.name for p in fallbacks if self._can_work(p)), None)
        return replace(failure, retry_with=named or await self._other_provider(error, spec))

    async def _other_provider(self, error: GoentError, spec: WorkerSpec) -> str | None:
        """Whom go-ent would choose, had nobody been named: able to take the task now."""
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

    async def _events(self, worker: str) -> list[EventEnvelope]:
        events: list[EventEnvelope] = []
        while page := await self._feed.events(
            worker=worker, after=events[-1].seq if events else 0, limit=5000
        ):
            events += page
        return events


def takeover_brief(task: str, prompt: str, events: Sequence[EventEnvelope]) -> str:
    """What somebody has to know who takes over in the middle."""
    calls = [e.event for e in events if isinstance(e.event, ToolCall)]
    files = [f"- {change.path}" for change in changed_files(calls)]
    commands = [
        f"- {shorten(c.command, COMMAND_LIMIT)} ({_exit_text(c.exit)})" for c in commands_run(calls)
    ]
    words = last_message(events)[-LAST_WORDS_LIMIT:]
    parts = [
        f"{TAKEOVER_PROMPT} {LOOK_FIRST_WARNING}",
        f"The task:\n{task}",
        *([] if prompt == task else [f"What it was asked last:\n{prompt}"]),
        *_section("Files that it has changed so far:", files),
        *_section("Commands that it has run:", commands),
        *_section("Its last words:", [words] if words else []),
    ]
    return "\n\n".join(parts)


def _section(head: str, lines: Sequence[str]) -> list[str]:
    if not lines:
        return []
    left = len(lines) - MOST_LISTED
    more = [f"- and {left} before these"] if left > 0 else []
    return ["\n".join([head, *more, *lines[-MOST_LISTED:]])]


def _exit_text(code: int | None) -> str:
    return "it is not known how it ended" if code is None else f"exit {code}"


def _with_task(prompt: Prompt) -> Prompt:
    return replace(prompt, text=f"{CONTINUE_PROMPT}\n\n{TASK_HEADING}\n{prompt.text}")
