"""Is what a command needs there? It is asked before the first attempt; an answer holds until the end of the run."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import anyio
from msgspec import Meta

from goent.domain.errors import WorkerCrashed
from goent.domain.types import Value
from goent.evals.ports import TargetError
from goent.proc import run

PAUSE_S = 0.5  # for which an answer holds for all: they ask together
OFTEN = 3  # for what is not there by then, nobody should wait before each case


class HealthCheck(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address that must answer with success, or a command that must."""

    type: Literal["http", "command"] | None = None
    url: str = ""
    command: str | tuple[str, ...] = ""
    cwd: str | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = 30.0


class Health:
    """Of one target. What was well once is not asked again; what was not, is, a few times."""

    def __init__(self, check: HealthCheck | None, environ: Mapping[str, str], here: Path) -> None:
        self._check = check
        self._environ = environ
        self._here = here
        self._asking = anyio.Lock()
        self._well = check is None
        self._asked = 0
        self._next = 0.0
        self._trouble = ""

    async def ensure(self) -> None:
        """Raises a `TargetError` of the kind `unhealthy`."""
        if self._well or self._check is None:
            return
        async with self._asking:
            if self._well:
                return
            if self._asked < OFTEN and anyio.current_time() >= self._next:
                self._asked += 1
                self._trouble = await self._look(self._check)
                self._next = anyio.current_time() + PAUSE_S
            self._well = not self._trouble
            if self._trouble:
                again = self._asked < OFTEN
                more = "" if again else f" (asked {OFTEN} times; it is not asked again)"
                raise TargetError("unhealthy", f"{self._trouble}{more}", retryable=again)

    async def _look(self, check: HealthCheck) -> str:
        troubles = [
            await _unanswered(check) if check.url else "",
            await self._failed(check) if check.command else "",
        ]
        return "; ".join(filter(None, troubles))

    async def _failed(self, check: HealthCheck) -> str:
        words = check.command
        command = ("/bin/sh", "-c", words) if isinstance(words, str) else words
        try:
            done = await run(
                command,
                cwd=self._here / (check.cwd or "."),
                env=self._environ,
                timeout=check.timeout_seconds,
            )
        except WorkerCrashed as error:
            return f"healthcheck: {error}"
        if done.exit is None:
            return f"healthcheck {words!r} did not end within {check.timeout_seconds:g} s"
        said = (done.errors or done.output)[-300:].strip()
        why = f": {said}" if said else ""
        return f"healthcheck {words!r} ended with {done.exit}{why}" if done.exit else ""


async def _unanswered(check: HealthCheck) -> str:
    """By its status alone: what else it says may be long, or never end."""
    import httpx2  # noqa: PLC0415 (few targets have an address)

    limit = check.timeout_seconds
    with anyio.move_on_after(limit):  # a client's own limit is for each piece
        try:
            async with (
                httpx2.AsyncClient(timeout=limit, trust_env=False) as client,
                client.stream("GET", check.url, follow_redirects=True) as answer,
            ):
                said = f"healthcheck {check.url!r} said {answer.status_code}"
                return "" if answer.is_success else said
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return f"healthcheck {check.url!r} did not answer: {error or type(error).__name__}"
    return f"healthcheck {check.url!r} did not answer within {limit:g} s"
