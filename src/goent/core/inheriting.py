"""What becomes of the workers of a go-ent that died? Their turn has failed; whoever has a session goes on."""

from collections.abc import Collection, Sequence
from pathlib import Path

from msgspec.structs import replace

from goent.core.feed import Feed
from goent.core.intake import below_checkout
from goent.core.neighbours import may_write
from goent.core.places import Places
from goent.core.shared_folders import LOST
from goent.core.views import WorkerView, evidence
from goent.domain.errors import WorkerIsClosed
from goent.domain.events import FilesChanged, TurnEnded, TurnStarted, UsageReported
from goent.domain.ports import WorkerSpec
from goent.domain.settings import Settings
from goent.domain.types import Failure, Method, Pin
from goent.policy.permissions import rules_for
from goent.policy.pins import choose

DIED = Failure(
    kind="daemon_died",
    message="go-ent ended in the middle of the turn; what was done so far is in place",
    retryable=True,
)
GOES_ON = ". The next prompt goes on in the same session"
DIED_EARLY = Failure(
    kind="daemon_died",
    message="go-ent ended before the worker had begun: nothing was done. Spawn it again",
    retryable=True,
)


async def end_turn(
    view: WorkerView, calls: Sequence[UsageReported], feed: Feed, places: Places
) -> None:
    """The turn that its go-ent died in, or before which it died. `calls` were never settled."""
    failure = replace(DIED, message=DIED.message + GOES_ON) if view.token else DIED
    if not view.turn:
        failure = DIED_EARLY
        await feed.append(view.id, TurnStarted(turn=1, prompt=view.spawned.task))
    for call in calls:
        await feed.append(view.id, call)
    if view.turn and (workspace := view.spawned.workspace):
        prompt = view.spawned.task
        for event in await places.keep_what_is_there(workspace, prompt, view.id):
            await feed.append(view.id, event)
    elif view.turn and may_write(view):
        await feed.append(view.id, FilesChanged(unseen=LOST))
    ended = TurnEnded(
        turn=view.turn or 1,
        state="failed",
        evidence=evidence(replace(view, state="failed")),
        failure=failure,
    )
    await feed.append(view.id, ended)


def next_spec(view: WorkerView, settings: Settings, methods: Collection[Method]) -> WorkerSpec:
    """How it is opened again, when it is prompted. Raises a `GoentError` if it cannot be."""
    if not view.token:
        raise WorkerIsClosed("it has no session to go on with")
    spawned, cwd = view.spawned, Path(view.spawned.cwd)
    pin = Pin(provider=spawned.backend, model=spawned.model, method=spawned.method)
    route = choose(pin, settings, tuple(methods))
    return WorkerSpec(
        id=view.id,
        cwd=cwd,
        provider=route.provider,
        method=route.method,
        rules=rules_for(spawned.permissions, settings.permissions.rules, below_checkout(cwd)),
        dedicated=spawned.isolation == "dedicated",
        fallbacks=tuple(p for p in settings.providers if p.name in spawned.fallbacks),
        resume=view.token,
        asked=view.asked,
        allowed_tools=spawned.allowed_tools,
    )
