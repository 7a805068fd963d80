"""Is a provider back? Asked in the background, if the settings want it, by the cheapest request.

A list of models costs nothing and shows whether the provider answers and takes the key. It shows
neither credit nor a free limit, so whoever lacks those waits for its time, and for a call.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping

import anyio

from goent.domain.errors import (
    AuthRefused,
    GoentError,
    ProviderRefused,
    ProviderTimeout,
    ProviderUnavailable,
    WorkerError,
)
from goent.domain.health import Healths, HealthState
from goent.domain.settings import Settings
from goent.domain.types import Provider
from goent.llm.codec import codec
from goent.llm.failures import failure
from goent.upstream.course import Target, target
from goent.upstream.forward import Connections, ModelCall

log = logging.getLogger(__name__)

AT_ONCE = 4
PROBE_S = 15.0
MOST_READ = 64 * 1024
FIRST_NOT_OK = 300
_PROBED: frozenset[HealthState] = frozenset({"unknown", "failing", "down", "refused"})


class Probe:
    """The background task of one go-ent; it sleeps while the settings want no probe."""

    def __init__(
        self,
        connections: Connections,
        healths: Healths,
        *,
        settings: Callable[[], Settings],
        environ: Callable[[], Mapping[str, str]],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._connections = connections
        self._healths = healths
        self._settings = settings
        self._environ = environ
        self._clock = clock

    async def run(self) -> None:
        while True:
            interval = 30.0
            try:
                settings = self._settings()
                interval = settings.health.check_interval
                if settings.health.probe:
                    await self.look(settings)
            except GoentError as error:  # a file with a mistake, a disk that is full
                log.info("no probe of providers: %s", error)
            await anyio.sleep(interval)

    async def look(self, settings: Settings) -> None:
        """Ask once everybody of whom too little is known, a few at a time."""
        limit = anyio.CapacityLimiter(AT_ONCE)
        async with anyio.create_task_group() as group:
            for each in self._worth_asking(settings):
                group.start_soon(self._ask, each, limit)

    def _worth_asking(self, settings: Settings) -> Iterator[Target]:
        """One model of a backend speaks for the list; the others are what their calls tell."""
        now, seen = self._clock(), set[str]()
        for provider in settings.providers:
            condition = self._healths.condition(provider)
            if condition.state not in _PROBED or condition.is_out(now):
                continue
            if condition.state == "unknown" and provider.backend in seen:
                continue
            try:
                found = target(provider, settings.backends, self._environ())
            except ProviderRefused:
                continue  # OpenCode calls it itself, or its key is missing
            seen.add(provider.backend)
            yield found

    async def _ask(self, asked: Target, limit: anyio.CapacityLimiter) -> None:
        async with limit:
            provider, began = asked.provider, self._clock()
            if not await self._healths.admits(provider):
                return
            told = False
            silent = f"{asked.place} did not list its models within {PROBE_S:g} s"
            error: WorkerError | None = ProviderTimeout(silent)
            try:
                with anyio.move_on_after(PROBE_S):
                    error = await self._answer(asked)
                told = await self._tell(provider, error, began)
            finally:
                if not told:
                    with anyio.CancelScope(shield=True):
                        await self._healths.released(provider)

    async def _tell(self, provider: Provider, error: WorkerError | None, began: float) -> bool:
        """Whether the answer told anything; a server without such a list tells nothing."""
        if error is None:
            await self._healths.served(provider, began=began)
        elif isinstance(error, ProviderUnavailable | AuthRefused):
            await self._healths.failed(provider, error, began=began)
        else:
            return False
        return True

    async def _answer(self, asked: Target) -> WorkerError | None:
        call = ModelCall(
            backend=asked.provider.backend,
            dialect=asked.dialect,
            method="GET",
            url=f"{asked.base_url}/models",
            headers=codec(asked.dialect).headers,
            body=b"",
            key=asked.key,
            given=asked.headers,
            server=asked.server,
            hurry=True,
        )
        try:
            async with self._connections.send(call) as answer:
                if answer.status < FIRST_NOT_OK:
                    return None
                body = bytearray()
                async for piece in answer.pieces:
                    body += piece[: MOST_READ - len(body)]
                    if len(body) == MOST_READ:
                        break
                said = call.without_key(bytes(body))
                backend = asked.provider.backend
                return failure(backend, answer.status, answer.headers, said, now=time.time())
        except WorkerError as error:
            return error
