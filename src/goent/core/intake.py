"""Can this task be served as asked? If so: what exactly was accepted."""

import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from goent.config.instructions import checkout
from goent.core.cautions import ASKING, cautions
from goent.core.router import Asked, Routed
from goent.domain.errors import NoRoute, RequestError
from goent.domain.events import WorkerSpawned
from goent.domain.requests import SpawnRequest
from goent.domain.settings import Settings
from goent.domain.types import (
    OWN_TOOLS,
    Isolation,
    Pin,
    Provider,
    Route,
    Value,
)
from goent.domain.verification import blank_commands
from goent.policy.needs import edits_asked
from goent.policy.permissions import preset_for


class Within(Value, frozen=True, kw_only=True):
    """The swarm that a task is part of, and what its worker has from it.

    `worker` is the id that it shall have, `label` the swarm's name for people; `avoid` are providers that have failed the task.
    """

    worker: str = ""
    group: str = ""
    label: str = ""
    group_budget_usd: Decimal | None = None
    task_id: str = ""
    start: str | None = None
    avoid: tuple[str, ...] = ()


ALONE = Within()


def asked_for(
    request: SpawnRequest, *, base: Path, settings: Settings, within: Within = ALONE
) -> Asked:
    """What has to find its way. Raises a `RequestError` that names the value and the remedy."""
    if not request.task.strip():
        raise RequestError("the task is empty: say what the worker is to do")
    for index, reason in blank_commands(request.verify):
        raise RequestError(f"verify[{index}]: {reason}")
    cwd = directory(request.cwd, base)
    isolation = _isolation(request, settings)
    if (request.uncommitted or request.carry) and isolation not in ("worktree", "copy"):
        raise RequestError(
            f"uncommitted and carry are for a folder of its own, and isolation is {isolation!r}: "
            "pass isolation 'worktree' or 'copy', or leave them out"
        )
    budget = request.budget_usd
    # What the tasks before it have made is only where it will work, and is looked for there.
    elsewhere = within.start is not None and isolation in ("worktree", "copy")
    named = tuple(str(cwd / name) for name in request.files)
    return Asked(
        text=request.task,
        cwd=cwd,
        files=named if elsewhere else existing_files(request.files, cwd),
        pin=Pin(provider=request.provider, model=request.model, method=request.method),
        budget_usd=None if budget is None else Decimal(str(budget)),
        allow_fallback=request.allow_fallback,
        asks=preset_for(request.permissions, settings.permissions, isolation) in ASKING,
        chosen_permissions=bool(request.permissions or settings.permissions.preset),
        avoid=within.avoid,
    )


def accept(
    request: SpawnRequest,
    asked: Asked,
    routed: Routed,
    *,
    settings: Settings,
    environ: Mapping[str, str],
    within: Within = ALONE,
) -> tuple[Route, WorkerSpawned]:
    """Raises a `RequestError` that names the value and the remedy."""
    route = routed.decision.route
    if not (route.method == "serve" and settings.opencode.serve_url):  # that one has its own keys
        _check_key(route.provider, settings, environ)
    _check_api(request, route)
    _check_agent(request, route, settings, environ)
    isolation = _isolation(request, settings)
    preset = preset_for(request.permissions, settings.permissions, isolation)
    if route.method == "cli" and asked.asks and not asked.must_ask(routed.task):
        preset = "readonly"  # by cli nobody could be asked
    return route, WorkerSpawned(
        task=request.task,
        cwd=str(asked.cwd),
        provider=route.provider.name,
        backend=route.provider.backend,
        model=route.provider.model,
        method=route.method,
        reason=route.reason,
        permissions=preset,
        isolation=isolation,
        timeout_s=request.timeout_s,
        budget_usd=asked.budget_usd,
        verify=request.verify,
        files=asked.files,
        fallbacks=tuple(fallback.name for fallback in route.fallbacks),
        warnings=(
            *routed.decision.warnings,
            *cautions(request, route, preset, asked.cwd, settings),
        ),
        task_type=routed.task.type,
        complexity=routed.task.complexity,
        size=routed.task.size,
        group=within.group,
        group_budget_usd=within.group_budget_usd,
        task_id=within.task_id,
        allowed_tools=request.allowed_tools,
        temperature=request.temperature,
        edits_asked=route.method != "api"
        and preset != "readonly"
        and edits_asked(request.task, routed.task),
    )


def _check_key(provider: Provider, settings: Settings, environ: Mapping[str, str]) -> None:
    backend = settings.backends.get(provider.backend)
    if backend and backend.lacks_key(environ):
        raise NoRoute(
            f"no key for provider {provider.name!r}: set {backend.key_env} where go-ent or its "
            f"client is started, or log in with `opencode auth login`"
        )


def _check_api(request: SpawnRequest, route: Route) -> None:
    """Agents choose for themselves how they ask their model."""
    if request.temperature is not None and route.method != "api":
        raise RequestError(
            f"temperature is for a model that is called directly, and the worker would run by "
            f"{route.method!r}: pass method 'api', or leave temperature out"
        )


def _check_agent(
    request: SpawnRequest, route: Route, settings: Settings, environ: Mapping[str, str]
) -> None:
    """What go-ent's own agent needs, and what it alone can do."""
    provider = route.provider
    own = route.method == "agent" and provider.backend not in settings.agents
    if request.allowed_tools is not None and not own:
        how = f"provider {provider.name!r}" if route.method == "agent" else f"{route.method!r}"
        raise RequestError(
            f"allowed_tools are for go-ent's own agent, and the worker would run by {how}: pass "
            "method 'agent' and a model that go-ent calls itself, or leave allowed_tools out"
        )
    named = request.allowed_tools or ()
    unknown = [name for name in named if name not in OWN_TOOLS and not name.startswith("mcp__")]
    if unknown:
        raise RequestError(
            f"there is no tool {shortened(unknown[0])!r}: allowed_tools may name "
            f"{', '.join(OWN_TOOLS)}"
        )
    backend = settings.backends.get(provider.backend)
    if own and not (backend and backend.base_url and backend.is_held(environ)):
        raise NoRoute(
            f"go-ent's own agent calls models through go-ent, which holds no key for provider "
            f"{provider.name!r}: give it one in .goent/providers.yaml, or use the method 'acp'"
        )


def directory(asked: str | None, base: Path) -> Path:
    """Where to work: as asked, from where the caller is."""
    try:
        cwd = (base / Path(asked or "").expanduser()).resolve()
        there = cwd.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise RequestError(f"cwd {shortened(asked)!r} cannot be used: {error}") from None
    if not there:
        raise RequestError(f"cwd {str(cwd)!r} does not exist: make it first, or leave cwd out")
    if not cwd.is_dir():
        raise RequestError(f"cwd {str(cwd)!r} is not a directory: name the folder it is in")
    return cwd


def existing_files(asked: Sequence[str], cwd: Path) -> tuple[str, ...]:
    """The files as absolute paths; one that is not there is an error.

    So is a link that leads out of the project: a caller that means what it leads to can name that.
    """
    paths = [cwd / name for name in asked]
    missing = [shortened(str(path)) for path in paths if not _exists(path)]
    if missing:
        raise RequestError(f"files that do not exist: {', '.join(map(repr, missing))}")
    top = checkout(cwd)
    for path in paths:
        _check_link(path, top)
    return tuple(map(str, paths))


def _check_link(path: Path, top: Path) -> None:
    written, real = Path(os.path.normpath(path)), Path(os.path.realpath(path))
    if written.is_relative_to(top) and not real.is_relative_to(os.path.realpath(top)):
        raise RequestError(
            f"files: {shortened(str(path))!r} leads out of {str(top)!r} by a link, to "
            f"{shortened(str(real))!r}: name that file itself if it is meant"
        )


def below_checkout(cwd: Path) -> str:
    """Where the directory lies below the top of its git checkout; empty at the top, or outside."""
    inside = cwd.relative_to(checkout(cwd)).as_posix()
    return "" if inside == "." else inside


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def shortened(text: str | None) -> str:
    return (text or "")[:200]


def _isolation(request: SpawnRequest, settings: Settings) -> Isolation:
    wanted = settings.isolation if request.isolation == "auto" else request.isolation
    return "shared" if wanted == "auto" else wanted
