"""The current settings and keys of a project, and the passes of its workers' processes.

The kernel shows that a process was started by a worker (`goent.daemon.daemon_connection`). A pass in
its environment, `<worker>.<mac>`, shows which one; only this daemon can have issued it.
"""

import hmac
import logging
import os
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from goent.agents.driver_context import DriverContext
from goent.config.provider_catalogue import with_served_models
from goent.config.settings_loader import LiveSettings
from goent.config.trust_records import read_approvals
from goent.domain.errors import ConfigError, StartedByWorker
from goent.domain.local_servers import ModelListing
from goent.domain.settings import Act, LimitSettings, Settings, withheld_warnings
from goent.proc.programs import path_outside
from goent.providers.provider_health import account_id
from goent.system.daemon_environment import WORKER_PASS, WORKER_SOCKET, fingerprint
from goent.system.project_folders import project_key, project_state_dir

log = logging.getLogger(__name__)

ALLOWED_METHODS: Final = frozenset(
    {"worker_status", "worker_output", "worker_result", "worker_wait", "watch"}
)


class IssuedPasses:
    """Implements `WorkerPasses`, and checks passes. They are valid as long as this object lives."""

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self.socket: Path | None = None  # where the daemon listens, if it does

    def environment(self, worker: str) -> Mapping[str, str]:
        where = {WORKER_SOCKET: str(self.socket)} if self.socket else {}
        return {WORKER_PASS: f"{worker}.{self._mac(worker)}", **where}

    def worker_with_pass(self, shown: str) -> str | None:
        """The worker of a pass; None if the pass is not genuine."""
        worker, _, mac = shown.rpartition(".")
        genuine = hmac.compare_digest(mac.encode(), self._mac(worker).encode())
        return worker if worker and genuine else None

    def _mac(self, worker: str) -> str:
        return hmac.digest(self._secret, worker.encode(), "sha256").hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAccess:
    """The rights of a connection from a worker's process; `worker` is None without a pass."""

    why: str
    worker: str | None

    def check(self, method: str, params: object) -> None:
        """Raise `StartedByWorker` unless the call only reads the worker's own state."""
        if not (
            self.worker and method in ALLOWED_METHODS and _workers_named(params) == {self.worker}
        ):
            raise StartedByWorker(self.refusal)

    @property
    def refusal(self) -> str:
        if self.worker:
            return (
                f"this process was started by worker {self.worker}, so it may only read that worker's "
                "status, output and result (by its full id)"
            )
        return (
            f"this process counts as started by a worker: {self.why}. go-ent takes no commands from "
            "workers; use your own terminal, or `go-ent mcp --embedded` in a container or sandbox"
        )


class _NamedWorkers(msgspec.Struct):
    """The workers that a request names, in any field."""

    worker_id: str = ""
    worker_ids: tuple[str, ...] = ()


def _workers_named(params: object) -> set[str]:
    try:
        about = msgspec.convert(params, _NamedWorkers)
    except msgspec.ValidationError:
        return set()
    return {*about.worker_ids, *filter(None, (about.worker_id,))}


class Project:
    """A project's folder, its current settings, and the keys that clients bring."""

    def __init__(self, project: Path, environ: Mapping[str, str]) -> None:
        self.folder = project
        self._environ = dict(environ)
        self._warned: set[str] = set()
        self._listings: Mapping[str, ModelListing] = {}
        self._merged: tuple[Settings, Settings] | None = None
        self._configuration = LiveSettings(project)
        self.state = project_state_dir(project_key(project), environ)
        self.passes = IssuedPasses()

    @property
    def surroundings(self) -> DriverContext:
        """The context for drivers."""
        return DriverContext(
            settings=self.settings,
            environ=self.environ,
            state_dir=self.state,
            passes=self.passes,
        )

    def environ(self) -> Mapping[str, str]:
        return self._environ

    def settings(self) -> Settings:
        """The current settings of the files; the last valid ones while a file has a mistake."""
        current = self._configuration.current(self._environ)
        if self._merged is None or self._merged[0] is not current:
            self._merged = (current, with_served_models(current, self._listings))
        return self._merged[1]

    def set_listings(self, listings: Mapping[str, ModelListing]) -> None:
        """Set the models that the user's own servers list."""
        if listings != self._listings:
            self._listings, self._merged = dict(listings), None

    def check(self) -> None:
        """Raise if a settings file is invalid now, so that no new work begins on old settings."""
        self._configuration.check(self._environ)

    def notices(self) -> tuple[str, ...]:
        """Warnings about an invalid settings file, and about untrusted entries."""
        trouble, withheld = self._configuration.error, self.settings().withheld
        mistaken = (f"the last valid settings stay in force: {trouble}",) if trouble else ()
        return (*mistaken, *withheld_warnings(withheld))

    def allows(self, act: Act) -> bool:
        """Whether the user has approved what a file of the project would do."""
        return read_approvals(self.folder, self._environ).covers(act)

    def key_names(self) -> tuple[str, ...]:
        try:
            return self.settings().key_names
        except ConfigError:
            return ()

    def account(self, backend: str) -> str:
        """A short id of the backend's account that reveals nothing of the key."""
        return account_id(self.settings().backends.get(backend), self._environ)

    def limits(self) -> LimitSettings:
        try:
            return self.settings().limits
        except ConfigError:
            return LimitSettings()

    def take_keys(self, keys: Mapping[str, str]) -> tuple[str, ...]:
        """Take missing keys that the configuration names from a client; returns warnings for it.

        Existing keys stay: a client must not change the account of everybody's workers.
        """
        warnings: list[str] = []
        for name in sorted(set(self.key_names()) & keys.keys()):
            known = self._environ.get(name)
            if not known:
                self._environ[name] = keys[name]
            elif known != keys[name]:
                ours, theirs = fingerprint(known), fingerprint(keys[name])
                warnings.append(
                    f"{name} differs here ({theirs}) from the daemon's key ({ours}), which workers use: "
                    "run `go-ent daemon stop`, and the next daemon takes yours"
                )
        for warning in set(warnings) - self._warned:
            log.warning("a client's key is not used: %s", warning)
        self._warned.update(warnings)
        return tuple(warnings)

    def fingerprints(self) -> Mapping[str, str]:
        """The fingerprints of the known keys, for clients to compare with theirs."""
        known = {name: self._environ.get(name) for name in self.key_names()}
        return {name: fingerprint(key) for name, key in known.items() if key}

    def secrets(self) -> Collection[str]:
        """What must never be stored."""
        try:
            backends = self.settings().backends.values()
        except ConfigError:
            return ()
        return [secret for backend in backends for secret in backend.secrets(self._environ)]

    def environ_without_keys(self) -> Mapping[str, str]:
        """The environment for the project's own commands."""
        hidden = set(self.key_names())
        return {name: value for name, value in self._environ.items() if name not in hidden}

    def git_environ(self) -> Mapping[str, str]:
        """The environment for git. It runs without a sandbox, so no PATH entry may be in the project."""
        environ = self.environ_without_keys()
        return {**environ, "PATH": path_outside(environ.get("PATH", os.defpath), self.folder)}
