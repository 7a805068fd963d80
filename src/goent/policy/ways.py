"""By which method does a provider work on a task that nobody pinned one for?"""

from collections.abc import Sequence

from goent.domain.settings import Settings
from goent.domain.types import Method, Provider
from goent.policy.facts import Facts


class Ways:
    """The methods there are. `alone`: there is but one provider, and nothing to choose."""

    def __init__(
        self, methods: Sequence[Method], settings: Settings, facts: Facts, *, alone: bool
    ) -> None:
        self._methods = tuple(methods)
        self._settings = settings
        self._facts = facts
        self._alone = alone

    def way(self, provider: Provider, *, wanted: Method | None, quick: bool) -> tuple[Method, str]:
        """The method, and a remark where it is not the one to be expected."""
        if provider.backend in self._settings.agents:
            return "agent", ""
        if wanted:
            return wanted, ""
        if provider.method == "agent" and "agent" in self._methods:
            return "agent", ""  # whoever named the provider meant that
        if self._facts.talk_only and self._can_call(provider):
            return "api", ", by api, because it needs no tools"
        method, how = self._own(provider)
        if not quick or "cli" not in self._methods:
            return method, how
        # Where somebody has to be asked, or the model is the only one: a session that is warm.
        if self._facts.asks:
            return method, how or f", by {method}, because it may have to ask, and cli cannot"
        if self._alone:
            return method, how or f", by {method}, because there is no other provider"
        return "cli", ", by cli"

    def _own(self, provider: Provider) -> tuple[Method, str]:
        if provider.method == "api" and not self._facts.talk_only:
            return self._with_tools(), f", by {self._with_tools()}, for api has no tools"
        if provider.method in self._methods:
            return provider.method, ""
        method = self._methods[0]
        return method, f"; by {method}, as {provider.method} is not available in this version"

    def _with_tools(self) -> Method:
        return "acp" if "acp" in self._methods else self._methods[0]

    def _can_call(self, provider: Provider) -> bool:
        """Whether go-ent itself knows the way to the model; OpenCode's own logins it does not."""
        backend = self._settings.backends.get(provider.backend)
        return "api" in self._methods and backend is not None and backend.base_url is not None
