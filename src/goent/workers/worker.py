"""Runs one worker: its turns, one at a time, until it closes.

One task runs it. Prompts wait in a queue, one turn at a time; every turn ends exactly once, and
so does the worker, whatever happens: the driver fails, somebody cancels, time runs out, go-ent
stops, or go-ent itself is wrong.
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
from goent.domain.workspace import Workspace
from goent.workers.worker_failover import as_failure
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
        shared: WorkerServices,
        *,
        turns_before: int = 0,
    ) -> None:
        self.spec = spec
        self.ended = anyio.Event()
        self.folder_released = anyio.Event()  # its folder is given back, too
        self._terms = terms
        self._driver = driver
        self._shared = shared
        self._prompts: deque[Prompt] = deque()
        self._woken = anyio.Event()
        self._scope = anyio.CancelScope()
        self._has_session = False
        self._turn: WorkerTurn | None = None
        self._turns_begun = turns_before
        self._close_reason = ""
        self._is_handed_over = False

    # What others ask of it

    @property
    def turn(self) -> int | None:
        """The number of the turn under way."""
        return self._turn.number if self._turn else None

    @property
    def workspace(self) -> Workspace | None:
        """The folder of its own, if it has one."""
        return self._terms.workspace

    @property
    def is_handed_over(self) -> bool:
        """Whether it ended here and goes on in the next go-ent."""
        return self._is_handed_over

    @property
    def busy(self) -> bool:
        """Whether a turn is under way, or about to begin."""
        return self._turn is not None or bool(self._prompts)

    def prompt(self, prompt: Prompt, *, queue: bool) -> int:
        """Accept a prompt and say which turn it will be."""
        if self._close_reason:
            raise WorkerIsClosed(f"worker {self.spec.id!r} is closed; spawn another one")
        if self.spec.method in ONE_TURN_METHODS and (self._turns_begun or self._prompts):
            raise WorkerIsClosed(
                f"worker {self.spec.id!r} runs by {self.spec.method!r}, which has one turn; "
                "spawn another one for further work"
            )
        if (self._turn or self._prompts) and not queue:
            raise WorkerBusy(
                f"worker {self.spec.id!r} is busy with turn {self._turns_begun}: wait for it, "
                "cancel it, or pass queue: true"
            )
        if len(self._prompts) >= QUEUE_LIMIT:
            raise WorkerBusy(f"worker {self.spec.id!r} has {QUEUE_LIMIT} prompts waiting")
        self._prompts.append(prompt)
        self._woken.set()
        return self.last_turn_due

    @property
    def last_turn_due(self) -> int:
        """The last turn that is begun, or that an accepted prompt will be."""
        return self._turns_begun + len(self._prompts)

    def cancel(self, reason: str) -> None:
        """Stop the turn under way and forget what waits behind it.

        A worker that has no session yet ends with it.
        """
        self._prompts.clear()
        if self._turn:
            self._turn.stop("cancel", reason)
        if not self._has_session:
            self._scope.cancel()

    def close(self, reason: str) -> None:
        """Take no further prompt; a turn under way is stopped."""
        self._close_reason = self._close_reason or reason
        self._woken.set()
        self.cancel(reason)

    def hand_over(self, reason: str) -> None:
        """End here but stay open in the journal: the next go-ent takes the worker over."""
        self._is_handed_over = not self.busy and not self._close_reason
        self.close(reason)

    async def answer(
        self, permission: str, option: PermissionAnswer, by: str, message: str = ""
    ) -> bool:
        if self._turn is None:
            raise RequestError(f"worker {self.spec.id!r} has no open question {permission!r}")
        return await self._turn.answer(permission, option, by, message)

    # What it does by itself

    async def run(self) -> None:
        """Live. Never fails: what goes wrong is in the journal."""
        failure: Failure | None = None
        reason = "go-ent stopped"
        try:
            with self._scope:
                await self._run_turns()
            reason = self._close_reason or "cancelled before it was ready"
        except GoentError as error:
            failure = await self._shared.failover.failure_of(error, self.spec)
            reason = "it could not go on"
        except Exception as bug:
            log.exception("worker %s met a fault of go-ent's own", self.spec.id)
            failure, reason = as_failure(bug), "a fault of go-ent's own"
        finally:
            self._close_reason = self._close_reason or reason
            with anyio.CancelScope(shield=True):
                if self._turn:
                    await self._turn.end(failure or "cancelled")
                if not self._is_handed_over:
                    await self._shared.feed.append(self.spec.id, WorkerClosed(reason=reason))
            self._turn = None
            self.ended.set()

    async def _run_turns(self) -> None:
        turn = await self._next_turn()
        if turn:
            await turn.queue()  # before there is a session: what waits for its turn costs nothing
        while turn:
            turn = await self._run_turns_in_session(turn)

    async def _run_turns_in_session(self, turn: WorkerTurn) -> WorkerTurn | None:
        """One turn after another, until the worker closes or one has to go on in another session."""
        async with AsyncExitStack() as held:
            session = await self._open_session(held, turn)
            self._has_session = True
            following: WorkerTurn | None = turn
            while following:
                spec = await following.run(session)
                if spec:
                    self.spec, self._has_session = spec, False
                    return following
                self._turn = None
                once = "had its one turn" if self.spec.method in ONE_TURN_METHODS else ""
                self._close_reason = self._close_reason or following.close_reason or once
                following = await self._next_turn()
        return None

    async def _open_session(self, held: AsyncExitStack, turn: WorkerTurn) -> WorkerSession:
        while True:
            try:
                return await held.enter_async_context(self._driver.open(self.spec))
            except WorkerError as error:
                spec = await turn.fail_over(error)
                if spec is None:
                    raise
                self.spec = spec

    async def _next_turn(self) -> WorkerTurn | None:
        """None when the worker is to close: somebody asked for it, or nobody asks anything."""
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
            shared=self._shared,
        )
        return self._turn


class Roster(dict[str, Worker]):
    """The living workers by id."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        super().__init__()
        self._settings = settings

    def at_work(self, worker: str) -> bool:
        """A turn of the worker's is under way."""
        life = self.get(worker)
        return life is not None and life.turn is not None

    def provider(self, worker: str, backend: str, model: str) -> Provider:
        """The one that is meant: the worker's own, a fallback, or whoever offers that model."""
        life = self.get(worker)
        own = [life.spec.provider, *life.spec.fallbacks] if life else []
        for provider in (*own, *self._settings().providers):
            if (provider.backend, provider.model) == (backend, model):
                return provider
        return Provider(name=f"{backend}/{model}", backend=backend, model=model)

    def serving(self, worker: str, backend: str, model: str) -> tuple[Provider, ...]:
        """Who may answer a call: whom it names, and then the worker's fallbacks."""
        life = self.get(worker)
        return (self.provider(worker, backend, model), *(life.spec.fallbacks if life else ()))

    def why_not(self, worker: str, backend: str) -> str:
        """Why the worker may not call the backend; empty if it may.

        Its program holds a token, and so does every command that it runs: that token opens no
        backend but the worker's own and those of its fallbacks.
        """
        life = self.get(worker)
        if life is None:
            return f"worker {worker!r} has ended, so it calls backend {backend!r} no more"
        own = dict.fromkeys(p.backend for p in (life.spec.provider, *life.spec.fallbacks))
        if backend in own:
            return ""
        return (
            f"worker {worker!r} may not call backend {backend!r}, only its provider's and its "
            f"fallbacks': {', '.join(map(repr, own))}"
        )
