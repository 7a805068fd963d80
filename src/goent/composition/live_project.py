"""What is known of a project now: its settings as the files say, and the keys that it is used with."""

import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from goent.config.reload import Configuration
from goent.config.served_models import with_served_models
from goent.config.trust.records import approvals
from goent.core.worker_access import IssuedPasses
from goent.domain.errors import ConfigError
from goent.domain.local_servers import Listing
from goent.domain.settings import Limits, Settings
from goent.domain.trust import Act, withheld_in_words
from goent.drivers.environment import Surroundings
from goent.launch import fingerprint
from goent.proc.programs import path_outside
from goent.project import project_key, project_state
from goent.upstream.health import account

log = logging.getLogger(__name__)


class Project:
    """What is known of the project: its folder, its settings, and the keys that clients bring."""

    def __init__(self, project: Path, environ: Mapping[str, str]) -> None:
        self.folder = project
        self._own = dict(environ)
        self._warned: set[str] = set()
        self._listings: Mapping[str, Listing] = {}
        self._merged: tuple[Settings, Settings] | None = None
        self._configuration = Configuration(project)
        self.state = project_state(project_key(project), environ)
        self.passes = IssuedPasses()

    @property
    def surroundings(self) -> Surroundings:
        """What whoever starts processes is given of it."""
        return Surroundings(
            settings=self.settings,
            environ=self.environ,
            state_dir=self.state,
            passes=self.passes,
        )

    def environ(self) -> Mapping[str, str]:
        return self._own

    def settings(self) -> Settings:
        """As the files say now; the last good ones while a file has a mistake."""
        said = self._configuration.current(self._own)
        if self._merged is None or self._merged[0] is not said:
            self._merged = (said, with_served_models(said, self._listings))
        return self._merged[1]

    def hear_servers(self, listings: Mapping[str, Listing]) -> None:
        """What the user's own servers have said of their models."""
        if listings != self._listings:
            self._listings, self._merged = dict(listings), None

    def check(self) -> None:
        """Raise what is wrong with the files now: no new work on settings that nobody wrote."""
        self._configuration.check(self._own)

    def notices(self) -> tuple[str, ...]:
        """A mistake in the rules, while the last good ones stay in force; and what is not trusted."""
        trouble, withheld = self._configuration.trouble, self.settings().withheld
        mistaken = (f"the last good settings stay in force: {trouble}",) if trouble else ()
        return (*mistaken, *withheld_in_words(withheld))

    def allows(self, act: Act) -> bool:
        """Whether the user has said yes to what a file of the project would do."""
        return approvals(self.folder, self._own).cover(act)

    def key_names(self) -> tuple[str, ...]:
        try:
            return self.settings().key_names
        except ConfigError:
            return ()

    def account(self, backend: str) -> str:
        """Whose key the backend is asked with, in a few letters that tell nothing."""
        return account(self.settings().backends.get(backend), self._own)

    def limits(self) -> Limits:
        try:
            return self.settings().limits
        except ConfigError:
            return Limits()

    def learn(self, keys: Mapping[str, str]) -> tuple[str, ...]:
        """A client's hello: a key that is missing is taken, if the configuration names it.

        One that is there stays: a client must not change the account of everybody's workers.
        Returns what the client is to be warned of.
        """
        warnings: list[str] = []
        for name in sorted(set(self.key_names()) & keys.keys()):
            held = self._own.get(name)
            if not held:
                self._own[name] = keys[name]
            elif held != keys[name]:
                ours, theirs = fingerprint(held), fingerprint(keys[name])
                warnings.append(
                    f"{name} is another key here ({theirs}) than the daemon's ({ours}), which "
                    "workers use: `go-ent daemon stop`, and the next daemon takes yours"
                )
        for warning in set(warnings) - self._warned:
            log.warning("a client's key is not used: %s", warning)
        self._warned.update(warnings)
        return tuple(warnings)

    def fingerprints(self) -> Mapping[str, str]:
        """Of the keys that are held, so that others can see whether theirs are the same."""
        held = {name: self._own.get(name) for name in self.key_names()}
        return {name: fingerprint(key) for name, key in held.items() if key}

    def secrets(self) -> Collection[str]:
        """What must never be written down."""
        try:
            backends = self.settings().backends.values()
        except ConfigError:
            return ()
        return [secret for backend in backends for secret in backend.secrets(self._own)]

    def without_keys(self) -> Mapping[str, str]:
        """The environment for whatever the project's own commands are."""
        hidden = set(self.key_names())
        return {name: value for name, value in self._own.items() if name not in hidden}

    def for_git(self) -> Mapping[str, str]:
        """The environment for git, which no sandbox holds: it is not looked for where workers write."""
        environ = self.without_keys()
        return {**environ, "PATH": path_outside(environ.get("PATH", os.defpath), self.folder)}
