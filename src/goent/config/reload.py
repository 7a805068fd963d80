"""What do the files say now? Read again when one changes; a mistake does not undo what held."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from goent.config.load import load_settings
from goent.config.trust.records import record_path
from goent.domain.errors import ConfigError, RulesMistaken
from goent.domain.settings import Settings
from goent.ownership import standing
from goent.project import config_dir

NAMES = ("config.yaml", "providers.yaml", "routing.yaml")

Stamp = tuple[int, tuple[tuple[int, int, int] | None, ...], tuple[tuple[object, ...], ...]]

log = logging.getLogger(__name__)


class Configuration:
    """One project's settings, kept current."""

    def __init__(self, project: Path) -> None:
        self._project = project
        self._stamp: Stamp | None = None
        self._good: Settings | None = None
        self.trouble: ConfigError | None = None

    def current(self, environ: Mapping[str, str]) -> Settings:
        """The settings; while a file has a mistake the last good ones, if there were any."""
        if self._take_stamp(environ) != self._stamp:
            self._load(environ)
            self._stamp = self._take_stamp(environ)  # by the files that are read now
        if self._good is None:
            assert self.trouble, "either loads, or says why not"
            raise self.trouble
        return self._good

    def check(self, environ: Mapping[str, str]) -> None:
        """Raise the mistake that a file has now, even if older settings still hold.

        One in the rules alone is no reason to stop: where a task goes, the last good ones say.
        """
        self.current(environ)
        if self.trouble and not isinstance(self.trouble, RulesMistaken):
            raise self.trouble

    def _load(self, environ: Mapping[str, str]) -> None:
        try:
            self._good, self.trouble = load_settings(self._project, environ), None
        except ConfigError as error:
            self.trouble = error
            log.warning("the configuration has a mistake: %s", error)

    def _take_stamp(self, environ: Mapping[str, str]) -> Stamp:
        paths = [*self._candidates(environ), *(self._good.files if self._good else ())]
        own = self._project / ".goent"
        whose = tuple(map(standing, (own, *(own / name for name in NAMES))))
        return hash(frozenset(environ.items())), tuple(map(_state, paths)), whose

    def _candidates(self, environ: Mapping[str, str]) -> Iterable[Path]:
        """Files that may appear, as well as those that are there."""
        own = config_dir(environ)
        for folder in (own, self._project / ".goent"):
            yield from (folder / name for name in NAMES)
        for name in ("opencode.json", "opencode.jsonc"):
            yield own.parent / "opencode" / name
        yield record_path(self._project, environ)


def _state(path: Path) -> tuple[int, int, int] | None:
    """Something that changes with the file, also if whoever changes it sets its times back."""
    try:
        info = path.stat()
    except OSError:
        return None
    return info.st_ctime_ns, info.st_mtime_ns, info.st_size
