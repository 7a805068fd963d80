"""Accepts or refuses a requested task, and provides its worker's folder."""

import logging
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path

import anyio
from msgspec.structs import replace

from goent.config.project_instructions import find_instructions, git_top
from goent.config.provider_settings import known_backend
from goent.domain.errors import GoentError, NoRoute, RequestError, WorkspaceLost
from goent.domain.events import AnyEvent, Noticed, WorkerSpawned, WorkKept
from goent.domain.replies import ClearReply, SpaceList
from goent.domain.requests import ClearRequest, SpawnRequest
from goent.domain.settings import Settings
from goent.domain.types import (
    ONE_TURN_METHODS,
    OWN_AGENT_TOOLS,
    Isolation,
    Pin,
    Preset,
    Provider,
    Route,
    Value,
)
from goent.domain.verification import blank_commands
from goent.domain.workspace import KeptSpace, Workspace, WorkspaceManager, WorkspaceRequest
from goent.permissions.permission_rules import preset_for
from goent.routing.router import RoutedTask, RouteRequest
from goent.routing.task_advice import asks_for_edits
from goent.workers.views import shorten

log = logging.getLogger(__name__)


SOLO_GROUP = "solo"  # the group of workers that are in no swarm
RELEASE_TIMEOUT_S = 30.0  # seconds to remove a folder that is no longer needed
KEEP_TIMEOUT_S = 60.0  # seconds to commit the work of an unfinished turn
SUBJECT_LIMIT = 70
ASKING_PRESETS: frozenset[Preset] = frozenset({"ask", "edit"})


def spawn_warnings(
    request: SpawnRequest, route: Route, preset: Preset, cwd: Path, settings: Settings
) -> Iterator[str]:
    if route.method in ONE_TURN_METHODS and preset in ASKING_PRESETS:
        yield (
            f"the method {route.method!r} cannot ask anybody: whatever permissions {preset!r} would ask "
            "is refused, which ends the turn; pass permissions 'auto', or use the method 'acp'"
        )
    if request.allow_fallback and not route.fallbacks:
        yield (
            f"allow_fallback has no effect: provider {route.provider.name!r} has no `fallbacks` in "
            ".goent/providers.yaml"
        )
    foreign = route.method == "agent" and route.provider.backend in settings.agents
    if foreign and (preset != "auto" or settings.permissions.rules):
        yield (
            f"{route.provider.backend} has its own permissions: rules apply only to what it asks. "
            f"Permissions {preset!r} select its matching mode, if it has one; an action against them "
            "that it does not ask about fails the turn, and is not undone"
        )
    lent = route.method == "serve" and settings.opencode.serve_url
    if lent and (preset != "auto" or settings.permissions.rules):
        yield (
            f"the OpenCode server at {settings.opencode.serve_url} has its own permissions: rules apply "
            "only to what it asks; an action against them that it does not ask about fails the turn, and "
            "is not undone"
        )
    if not foreign and _reads_instructions(route, settings):
        yield from find_instructions((cwd, settings.project), project=settings.project).skipped


def _reads_instructions(route: Route, settings: Settings) -> bool:
    """Whether go-ent reads the project's instructions, rather than OpenCode or nobody."""
    opencode = settings.opencode
    by_itself = opencode.project_config and opencode.profile == "user"
    return route.method == "agent" or (route.method != "api" and not by_itself)


class SwarmMembership(Value, frozen=True, kw_only=True):
    """The swarm that a task belongs to, and what its worker gets from it.

    `worker` is its id, `label` the swarm's name for people, `start` the commit to start from; the
    providers to `avoid` have failed the task.
    """

    worker: str = ""
    group: str = ""
    label: str = ""
    group_budget_usd: Decimal | None = None
    task_id: str = ""
    start: str | None = None
    avoid: tuple[str, ...] = ()


NO_SWARM = SwarmMembership()


def route_request(
    request: SpawnRequest, *, base: Path, settings: Settings, within: SwarmMembership = NO_SWARM
) -> RouteRequest:
    """The request for the router. Raises a `RequestError` with the value and the remedy."""
    if not request.task.strip():
        raise RequestError("the task is empty: say what the worker is to do")
    for index, reason in blank_commands(request.verify):
        raise RequestError(f"verify[{index}]: {reason}")
    cwd = working_directory(request.cwd, base)
    isolation = _isolation(request, settings)
    if (request.uncommitted or request.carry) and isolation not in ("worktree", "copy"):
        raise RequestError(
            f"uncommitted and carry need a folder of its own, but isolation is {isolation!r}: pass "
            "isolation 'worktree' or 'copy', or leave them out"
        )
    budget = request.budget_usd
    # Files that earlier tasks made exist only in its own folder, and are checked there.
    elsewhere = within.start is not None and isolation in ("worktree", "copy")
    named = tuple(str(cwd / name) for name in request.files)
    return RouteRequest(
        text=request.task,
        cwd=cwd,
        files=named if elsewhere else existing_files(request.files, cwd),
        pin=Pin(provider=request.provider, model=request.model, method=request.method),
        budget_usd=None if budget is None else Decimal(str(budget)),
        allow_fallback=request.allow_fallback,
        may_ask=preset_for(request.permissions, settings.permissions, isolation) in ASKING_PRESETS,
        chosen_permissions=bool(request.permissions or settings.permissions.preset),
        avoid=within.avoid,
    )


def accept_task(
    request: SpawnRequest,
    asked: RouteRequest,
    routed: RoutedTask,
    *,
    settings: Settings,
    environ: Mapping[str, str],
    within: SwarmMembership = NO_SWARM,
) -> tuple[Route, WorkerSpawned]:
    """The accepted task. Raises a `RequestError` with the value and the remedy."""
    route = routed.decision.route
    if not (
        route.method == "serve" and settings.opencode.serve_url
    ):  # that server has its own keys
        _check_key(route.provider, settings, environ)
    if request.temperature is not None and route.method != "api":
        raise RequestError(
            f"temperature is for a model that is called directly, and the worker would run by "
            f"{route.method!r}: pass method 'api', or leave temperature out"
        )
    _check_agent(request, route, settings, environ)
    isolation = _isolation(request, settings)
    preset = preset_for(request.permissions, settings.permissions, isolation)
    if route.method == "cli" and asked.may_ask and not asked.must_ask(routed.task):
        preset = "readonly"  # cli cannot ask
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
            *spawn_warnings(request, route, preset, asked.cwd, settings),
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
        and asks_for_edits(request.task, routed.task),
    )


def _check_key(provider: Provider, settings: Settings, environ: Mapping[str, str]) -> None:
    backend = settings.backends.get(provider.backend)
    if backend and backend.lacks_key(environ):
        login = ", or log in with `opencode auth login`" if known_backend(backend.id) else ""
        raise NoRoute(
            f"no key for provider {provider.name!r}: set {backend.key_env} where go-ent or its "
            f"client is started{login}"
        )


def _check_agent(
    request: SpawnRequest, route: Route, settings: Settings, environ: Mapping[str, str]
) -> None:
    """Check what only go-ent's own agent can do, and what it needs."""
    provider = route.provider
    own = route.method == "agent" and provider.backend not in settings.agents
    if request.allowed_tools is not None and not own:
        how = f"provider {provider.name!r}" if route.method == "agent" else f"{route.method!r}"
        raise RequestError(
            f"allowed_tools are for go-ent's own agent, and the worker would run by {how}: pass "
            "method 'agent' and a model that go-ent calls itself, or leave allowed_tools out"
        )
    named = request.allowed_tools or ()
    unknown = [
        name for name in named if name not in OWN_AGENT_TOOLS and not name.startswith("mcp__")
    ]
    if unknown:
        raise RequestError(
            f"there is no tool {clip_value(unknown[0])!r}: allowed_tools may name "
            f"{', '.join(OWN_AGENT_TOOLS)}"
        )
    backend = settings.backends.get(provider.backend)
    if own and not (backend and backend.base_url and backend.is_held(environ)):
        raise NoRoute(
            f"go-ent's own agent calls models through go-ent, which holds no key for provider "
            f"{provider.name!r}: give it one in .goent/providers.yaml, or use the method 'acp'"
        )


def working_directory(asked: str | None, base: Path) -> Path:
    """The requested working directory, relative to the caller's."""
    try:
        cwd = (base / Path(asked or "").expanduser()).resolve()
        there = cwd.exists()
    except (OSError, ValueError, RuntimeError) as error:
        raise RequestError(f"cwd {clip_value(asked)!r} cannot be used: {error}") from None
    if not there:
        raise RequestError(f"cwd {str(cwd)!r} does not exist: make it first, or leave cwd out")
    if not cwd.is_dir():
        raise RequestError(f"cwd {str(cwd)!r} is not a directory: name the folder it is in")
    return cwd


def existing_files(asked: Sequence[str], cwd: Path) -> tuple[str, ...]:
    """The files as absolute paths. Raises for a missing one, and for a link out of the project."""
    paths = [cwd / name for name in asked]
    missing = [clip_value(str(path)) for path in paths if not _exists(path)]
    if missing:
        raise RequestError(f"files that do not exist: {', '.join(map(repr, missing))}")
    top = git_top(cwd)
    for path in paths:
        written, real = Path(os.path.normpath(path)), Path(os.path.realpath(path))
        if written.is_relative_to(top) and not real.is_relative_to(os.path.realpath(top)):
            raise RequestError(
                f"files: {clip_value(str(path))!r} leads out of {str(top)!r} by a link, to "
                f"{clip_value(str(real))!r}: name that file itself if you mean it"
            )
    return tuple(map(str, paths))


def below_checkout(cwd: Path) -> str:
    """The directory's path below the top of its git checkout; empty at the top, or without one."""
    inside = cwd.relative_to(git_top(cwd)).as_posix()
    return "" if inside == "." else inside


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def clip_value(text: str | None) -> str:
    return (text or "")[:200]


def _isolation(request: SpawnRequest, settings: Settings) -> Isolation:
    wanted = settings.isolation if request.isolation == "auto" else request.isolation
    return "shared" if wanted == "auto" else wanted


class WorkerFolders:
    """Prepares and releases the folders of workers."""

    def __init__(self, workspaces: WorkspaceManager) -> None:
        self.workspaces = workspaces

    @asynccontextmanager
    async def prepared(
        self, worker: str, spawned: WorkerSpawned, request: SpawnRequest, within: SwarmMembership
    ) -> AsyncGenerator[WorkerSpawned]:
        """The task with its folder prepared. If the block fails, the folder is removed."""
        if spawned.isolation not in ("worktree", "copy"):
            yield spawned
            return
        order = WorkspaceRequest(
            worker=worker,
            group=within.label or within.group or SOLO_GROUP,
            cwd=Path(spawned.cwd),
            kind=spawned.isolation,
            start=within.start,
            uncommitted=request.uncommitted,
            carry=request.carry,
        )
        workspace = await self.workspaces.prepare(order)
        try:
            yield replace(
                spawned,
                cwd=workspace.cwd,
                files=existing_files(files_inside(workspace, spawned.files), Path(workspace.cwd)),
                warnings=(*spawned.warnings, *workspace.warnings),
                workspace=workspace,
            )
        except BaseException:
            await self.release(workspace)
            raise

    async def release(self, workspace: Workspace | None) -> None:
        """Release a worker's folder. `gc` lists folders that stay, or cannot be removed."""
        if workspace is None:
            return
        with anyio.move_on_after(RELEASE_TIMEOUT_S, shield=True):
            try:
                await self.workspaces.release(workspace)
            except GoentError as error:
                log.warning("the workspace %r stays: %s", workspace.path, error)

    async def keep(self, workspace: Workspace, prompt: str, worker: str) -> Sequence[AnyEvent]:
        """Commit the work to its branch; returns the events. Raises only `WorkspaceLost`."""
        subject = shorten(prompt, SUBJECT_LIMIT) or "Work"
        try:
            work = await self.workspaces.commit_work(
                workspace, f"{subject}\n\nBy worker {worker}\n"
            )
        except WorkspaceLost:
            raise
        except GoentError as error:
            return [Noticed(text=f"not on its branch, only in {workspace.path!r}: {error}")]
        return [WorkKept(work=work), *(Noticed(text=warning) for warning in work.warnings)]

    async def keep_unfinished(
        self, workspace: Workspace, prompt: str, worker: str
    ) -> Sequence[AnyEvent]:
        """The same for an unfinished turn: never raises, and waits for a limited time."""
        with anyio.move_on_after(KEEP_TIMEOUT_S, shield=True):
            try:
                return await self.keep(workspace, prompt, worker)
            except WorkspaceLost as lost:
                return [Noticed(text=str(lost))]
        return [
            Noticed(
                text=f"not on its branch, only in {workspace.path!r}: "
                f"git did not end within {KEEP_TIMEOUT_S:g} s"
            )
        ]

    async def list_spaces(self) -> SpaceList:
        spaces = await self.workspaces.list_kept()
        return SpaceList(spaces=tuple(spaces), bytes=sum(space.bytes for space in spaces))

    async def clear_spaces(self, request: ClearRequest) -> ClearReply:
        """Remove the named ones, all or none; without names, those that are no longer needed."""
        if not request.workers:
            removed = await self.workspaces.remove_finished()
            return ClearReply(removed=tuple(removed), kept=tuple(await self.workspaces.list_kept()))
        kept = {space.worker: space for space in await self.workspaces.list_kept()}
        for worker in request.workers:
            _check_removable(worker, kept)
        gone = [await self.workspaces.remove(worker) for worker in dict.fromkeys(request.workers)]
        rest = (space for name, space in kept.items() if name not in request.workers)
        return ClearReply(removed=tuple(gone), kept=tuple(rest))

    async def tidy(self) -> None:
        """Remove the finished workspaces of earlier workers."""
        try:
            for gone in await self.workspaces.remove_finished():
                log.info("removed the workspace %r: %s", gone.path, gone.state)
        except GoentError as error:
            log.warning("finished workspaces were not removed: %s", error)


def _check_removable(worker: str, kept: Mapping[str, KeptSpace]) -> None:
    if worker not in kept:
        there = ", ".join(kept) or "none"
        raise RequestError(f"worker {worker!r} has no workspace; there are: {there}")
    if kept[worker].state == "in_use":
        raise RequestError(
            f"worker {worker!r} is still open and has its workspace in use: close it first, with "
            f"`go-ent cancel --close {worker}`"
        )


def files_inside(workspace: Workspace | None, files: Sequence[str]) -> tuple[str, ...]:
    """The files' paths in the worker's folder; those that exist only in the user's stay there."""
    if workspace is None:
        return tuple(files)
    return tuple(_file_inside(workspace, Path(file)) for file in files)


def _file_inside(workspace: Workspace, file: Path) -> str:
    origin = Path(workspace.origin)
    if not file.is_relative_to(origin):
        return str(file)
    own = Path(workspace.path) / file.relative_to(origin)
    return str(own if own.exists() else file)
