"""Checks that a command target is healthy before it gets cases."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import anyio
from msgspec import Meta

from goent.domain.errors import WorkerCrashed
from goent.domain.types import Value
from goent.evals.eval_ports import TargetError
from goent.proc.child_process import run_command

CHECK_PAUSE_S = 0.5  # how long a result holds for cases that start together
MOST_CHECKS = 3  # later cases do not wait for it again


class HealthCheck(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An address or a command that must succeed."""

    type: Literal["http", "command"] | None = None
    url: str = ""
    command: str | tuple[str, ...] = ""
    cwd: str | None = None
    timeout_seconds: Annotated[float, Meta(gt=0)] = 30.0


class TargetHealth:
    """The health of one target: checked until it is healthy, a few times at most."""

    def __init__(self, check: HealthCheck | None, environ: Mapping[str, str], here: Path) -> None:
        self._check = check
        self._environ = environ
        self._here = here
        self._lock = anyio.Lock()
        self._is_healthy = check is None
        self._checks = 0
        self._next_check = 0.0
        self._trouble = ""

    async def ensure(self) -> None:
        """Raises a `TargetError` of the kind `unhealthy`."""
        if self._is_healthy or self._check is None:
            return
        async with self._lock:
            if self._is_healthy:
                return
            if self._checks < MOST_CHECKS and anyio.current_time() >= self._next_check:
                self._checks += 1
                self._trouble = await self._check_all(self._check)
                self._next_check = anyio.current_time() + CHECK_PAUSE_S
            self._is_healthy = not self._trouble
            if self._trouble:
                again = self._checks < MOST_CHECKS
                more = "" if again else f" (checked {MOST_CHECKS} times; it is not checked again)"
                raise TargetError("unhealthy", f"{self._trouble}{more}", retryable=again)

    async def _check_all(self, check: HealthCheck) -> str:
        troubles = [
            await _http_trouble(check) if check.url else "",
            await self._command_trouble(check) if check.command else "",
        ]
        return "; ".join(filter(None, troubles))

    async def _command_trouble(self, check: HealthCheck) -> str:
        words = check.command
        command = ("/bin/sh", "-c", words) if isinstance(words, str) else words
        try:
            done = await run_command(
                command,
                cwd=self._here / (check.cwd or "."),
                env=self._environ,
                timeout=check.timeout_seconds,
            )
        except WorkerCrashed as error:
            return f"healthcheck: {error}"
        if done.exit is None:
            return f"healthcheck {words!r} did not end within {check.timeout_seconds:g} s"
        output = (done.errors or done.output)[-300:].strip()
        why = f": {output}" if output else ""
        return f"healthcheck {words!r} ended with {done.exit}{why}" if done.exit else ""


async def _http_trouble(check: HealthCheck) -> str:
    """Reads the status alone: the body may be long, or never end."""
    import httpx2  # noqa: PLC0415 (few targets have an address)

    limit = check.timeout_seconds
    with anyio.move_on_after(limit):  # the client's own limit is for each read
        try:
            async with (
                httpx2.AsyncClient(timeout=limit, trust_env=False) as client,
                client.stream("GET", check.url, follow_redirects=True) as answer,
            ):
                failed = f"healthcheck {check.url!r} answered {answer.status_code}"
                return "" if answer.is_success else failed
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            return f"healthcheck {check.url!r} did not answer: {error or type(error).__name__}"
    return f"healthcheck {check.url!r} did not answer within {limit:g} s"
