"""Runs one worker: its turns, one at a time, until it closes.

Prompts wait in a queue. Every turn ends exactly once, and so does the worker, whatever happens: the
driver fails, somebody cancels, time runs out, go-ent stops, or go-ent itself has a bug.
"""

import logging
from collections import deque
from collections.abc import Callable
from contextlib import AsyncExitStack

import anyio

from goent.domain.errors import GoentError, RequestError, WorkerBusy, WorkerError, WorkerIsClosed
from goent.domain.events import WorkerClosed
from goent.domain.ports import Driver, WorkerSession, WorkerSpec
from goent.domain.settings import Settings
from goent.domain.types import ONE_TURN_METHODS, Failure, PermissionAnswer, Prompt, Provider
from goent.workers.worker_failover import INTERNAL_ERROR, as_failure
from goent.workers.worker_turn import WorkerServices, WorkerTerms, WorkerTurn

log = logging.getLogger(__name__)

QUEUE_LIMIT = 16  # prompts that may wait behind a running turn


class Worker:
    """The handle on a living worker. Its state is in the journal, not here."""

    def __init__(
        self,
        spec: WorkerSpec,
        terms: WorkerTerms,
        driver: Driver,
        services: WorkerServices,
        *,
        turns_before: int = 0,
    ) -> None:
        self.spec = spec
        self.workspace = terms.workspace
        self.ended = anyio.Event()
        self.folder_released = anyio.Event()
        self.is_handed_over = False  # ended here, and continues in the next daemon
        self._terms = terms
        self._driver = driver
        self._services = services
        self._prompts: deque[Prompt] = deque()
        self._woken = anyio.Event()
        self._scope = anyio.CancelScope()
        self._has_session = False
        self._turn: WorkerTurn | None = None
        self._turns_begun = turns_before
        self._close_reason = ""

    # Commands, from other tasks

    @property
    def turn(self) -> int | None:
        """The number of the running turn."""
        return self._turn.number if self._turn else None

    @property
    def busy(self) -> bool:
        """Whether a turn is running or about to begin."""
        return self._turn is not None or bool(self._prompts)

    @property
    def last_turn_due(self) -> int:
        """The number of the last turn that has begun or is queued."""
        return self._turns_begun + len(self._prompts)

    def prompt(self, prompt: Prompt, *, queue: bool) -> int:
        """Queue a prompt and return the number of its turn."""
        if self._close_reason:
            raise WorkerIsClosed(f"worker {self.spec.id!r} is closed; spawn another one")
        if self.spec.method in ONE_TURN_METHODS and self.last_turn_due:
            raise WorkerIsClosed(
                f"worker {self.spec.id!r} runs by {self.spec.method!r}, which has one turn; "
                "spawn another one for further work"
            )
        if self.busy and not queue:
            raise WorkerBusy(
                f"worker {self.spec.id!r} is busy with turn {self._turns_begun}: wait for it, "
                "cancel it, or pass queue: true"
            )
        if len(self._prompts) >= QUEUE_LIMIT:
            raise WorkerBusy(f"worker {self.spec.id!r} has {QUEUE_LIMIT} prompts waiting")
        self._prompts.append(prompt)
        self._woken.set()
        return self.last_turn_due

    async def answer(
        self, permission: str, option: PermissionAnswer, by: str, message: str = ""
    ) -> bool:
        """Answer a permission question; whether the model gets the message."""
        if self._turn is None:
            raise RequestError(f"worker {self.spec.id!r} has no open question {permission!r}")
        return await self._turn.answer(permission, option, by, message)

    def cancel(self, reason: str) -> None:
        """Stop the running turn and drop the queue. A worker without a session ends as well."""
        self._prompts.clear()
        if self._turn:
            self._turn.stop("cancel", reason)
        if not self._has_session:
            self._scope.cancel()

    def close(self, reason: str) -> None:
        """Accept no further prompt, and stop the running turn."""
        self._close_reason = self._close_reason or reason
        self._woken.set()
        self.cancel(reason)

    def hand_over(self, reason: str) -> None:
        """End here; an idle worker stays open in the journal, and the next daemon resumes it."""
        self.is_handed_over = not self.busy and not self._close_reason
        self.close(reason)

    # The worker's own task

    async def run(self) -> None:
        """Live until closed. Never raises: failures go to the journal."""
        failure: Failure | None = None
        reason = "go-ent stopped"
        try:
            with self._scope:
                await self._run_turns()
            reason = self._close_reason or "cancelled before it was ready"
        except GoentError as error:
            failure = await self._services.failover.failure_of(error, self.spec)
            reason = "it could not continue"
        except Exception as bug:
            log.exception("worker %s: %s", self.spec.id, INTERNAL_ERROR)
            failure, reason = as_failure(bug), INTERNAL_ERROR
        finally:
            self._close_reason = self._close_reason or reason
            with anyio.CancelScope(shield=True):
                if self._turn:
                    await self._turn.end(failure or "cancelled")
                if not self.is_handed_over:
                    await self._services.feed.append(self.spec.id, WorkerClosed(reason=reason))
            self._turn = None
            self.ended.set()

    async def _run_turns(self) -> None:
        turn = await self._next_turn()
        if turn:
            await turn.wait_for_slot()  # before opening a session: a queued worker costs nothing
        while turn:
            turn = await self._run_session(turn)

    async def _run_session(self, turn: WorkerTurn) -> WorkerTurn | None:
        """Run turns in one session; returns a turn that must continue in another session."""
        async with AsyncExitStack() as stack:
            session = await self._open_session(stack, turn)
            self._has_session = True
            current: WorkerTurn | None = turn
            while current:
                if moved := await current.run(session):
                    self.spec, self._has_session = moved, False
                    return current
                self._turn = None
                once = "had its one turn" if self.spec.method in ONE_TURN_METHODS else ""
                self._close_reason = self._close_reason or current.close_reason or once
                current = await self._next_turn()
        return None

    async def _open_session(self, stack: AsyncExitStack, turn: WorkerTurn) -> WorkerSession:
        while True:
            try:
                return await stack.enter_async_context(self._driver.open(self.spec))
            except WorkerError as error:
                moved = await turn.fail_over(error)
                if moved is None:
                    raise
                self.spec = moved

    async def _next_turn(self) -> WorkerTurn | None:
        """Wait for a prompt. None when the worker is to close: on request, or idle for too long."""
        idle = self._terms.limits.idle_close_s
        with anyio.move_on_after(idle):
            while not self._prompts and not self._close_reason:
                self._woken = anyio.Event()
                await self._woken.wait()
        if not self._prompts:
            self._close_reason = self._close_reason or f"idle for {idle:.0f} s"
        if self._close_reason:
            return None
        self._turns_begun += 1
        self._turn = WorkerTurn(
            self._turns_begun,
            self._prompts.popleft(),
            spec=self.spec,
            terms=self._terms,
            services=self._services,
        )
        return self._turn


class Roster(dict[str, Worker]):
    """The living workers by id, and which providers each may call."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        super().__init__()
        self._settings = settings

    def at_work(self, worker: str) -> bool:
        """Whether a turn of the worker is running."""
        living = self.get(worker)
        return living is not None and living.turn is not None

    def provider(self, worker: str, backend: str, model: str) -> Provider:
        """The provider of a call: the worker's own, a fallback, or any that offers the model."""
        for provider in (*self._own_providers(worker), *self._settings().providers):
            if (provider.backend, provider.model) == (backend, model):
                return provider
        return Provider(name=f"{backend}/{model}", backend=backend, model=model)

    def serving(self, worker: str, backend: str, model: str) -> tuple[Provider, ...]:
        """The providers that may answer a call, best first: the one it names, then the fallbacks."""
        return (self.provider(worker, backend, model), *self._own_providers(worker)[1:])

    def why_not(self, worker: str, backend: str) -> str:
        """Why the worker may not call the backend; empty if it may.

        The worker's program holds a token, and so does every command that it runs. The token opens
        only the backends of the worker's provider and its fallbacks.
        """
        if worker not in self:
            return f"worker {worker!r} has ended, so it may not call backend {backend!r} any more"
        own = dict.fromkeys(provider.backend for provider in self._own_providers(worker))
        if backend in own:
            return ""
        return (
            f"worker {worker!r} may not call backend {backend!r}, only its provider's and its "
            f"fallbacks': {', '.join(map(repr, own))}"
        )

    def _own_providers(self, worker: str) -> tuple[Provider, ...]:
        living = self.get(worker)
        return (living.spec.provider, *living.spec.fallbacks) if living else ()
