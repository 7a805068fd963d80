"""What should whoever gave a task know, before the worker has begun?"""

from collections.abc import Iterator
from pathlib import Path

from goent.config.instructions import instructions
from goent.domain.requests import SpawnRequest
from goent.domain.settings import Settings
from goent.domain.types import ONE_TURN, Preset, Route

ASKING: frozenset[Preset] = frozenset({"ask", "edit"})


def cautions(
    request: SpawnRequest, route: Route, preset: Preset, cwd: Path, settings: Settings
) -> Iterator[str]:
    if route.method in ONE_TURN and preset in ASKING:
        yield (
            f"the method {route.method!r} has nobody to ask: what permissions {preset!r} would ask is "
            "refused, and that ends the turn; pass permissions 'auto', or use the method 'acp'"
        )
    if request.allow_fallback and not route.fallbacks:
        yield (
            f"allow_fallback has no effect: provider {route.provider.name!r} has no `fallbacks` in "
            ".goent/providers.yaml"
        )
    foreign = route.method == "agent" and route.provider.backend in settings.agents
    if foreign and (preset != "auto" or settings.permissions.rules):
        yield (
            f"{route.provider.backend} has permissions of its own: rules hold for what it asks. Permissions "
            f"{preset!r} choose the mode of its own that fits, if it has one; what it does unasked against "
            "them fails the turn, and is not undone"
        )
    lent = route.method == "serve" and settings.opencode.serve_url
    if lent and (preset != "auto" or settings.permissions.rules):
        yield (
            f"the OpenCode server at {settings.opencode.serve_url} has permissions of its own: rules hold for what it "
            "asks; what it does unasked against them fails the turn, and is not undone"
        )
    if not foreign and _reads_instructions(route, settings):
        yield from instructions((cwd, settings.project), project=settings.project).skipped


def _reads_instructions(route: Route, settings: Settings) -> bool:
    """Whether the project's instructions are read by go-ent; else by nobody, or by OpenCode itself."""
    opencode = settings.opencode
    by_itself = opencode.project_config and opencode.profile == "user"
    return route.method == "agent" or (route.method != "api" and not by_itself)
