"""Which workers live, and who may serve their model calls?"""

from collections.abc import Callable

from goent.core.life import Life
from goent.domain.settings import Settings
from goent.domain.types import Provider


class Roster(dict[str, Life]):
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
