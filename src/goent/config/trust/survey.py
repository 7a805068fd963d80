"""Everything in a project's settings and OpenCode files that waits for a yes, or has one."""

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

from goent.config.load import load_settings
from goent.config.sources import Files
from goent.config.tree import Problems
from goent.config.trust.opencode_files import opencode_acts
from goent.config.trust.records import approvals, grant, read_record
from goent.domain.errors import ConfigError, NotTrusted
from goent.domain.trust import Act, in_few_words
from goent.ownership import UnsafeFolder
from goent.project import find_project

PROJECT_CONFIG = "opencode.project_config"


def acts_of(project: Path, environ: Mapping[str, str], *below: Path) -> tuple[Act, ...]:
    """What the project's settings and OpenCode's own files in it would do. A mistake hides nothing.

    `below` are further folders that OpenCode is to work in. Raises `UnsafeFolder`.
    """
    settings = Files(project, environ, Problems()).trees().acts
    whole = any(act.key == PROJECT_CONFIG for act in settings) or _follows_project(project, environ)
    found = [
        act
        for folder in dict.fromkeys((project, *below))
        for act in opencode_acts(folder, environ, whole=whole)
    ]
    return tuple({(act.file, act.digest): act for act in (*settings, *found)}.values())


def trust_own(project: Path, environ: Mapping[str, str]) -> None:
    """Say yes to everything there: for files that go-ent itself, or the caller, has just written."""
    grant(project, environ, acts_of(project, environ))


def trust_starter(project: Path, environ: Mapping[str, str], written: Collection[Path]) -> None:
    """Say yes to the files that `go-ent init` has written, and to nothing that was there before."""
    names = {str(path.relative_to(project)) for path in written}
    record = read_record(project, environ)
    new = [act for act in acts_of(project, environ) if act.file in names]
    grant(project, environ, (*(record.acts if record else ()), *new))


def check_opencode(
    folder: Path,
    project: Path,
    environ: Mapping[str, str],
    *,
    whole: bool,
    more: tuple[Act, ...] = (),
) -> None:
    """Raise `NotTrusted` if OpenCode would run something in the folder that nobody has allowed.

    `more` is what else it would make run there. A folder may be in a project of its own, inside the
    other: what the user allowed for either is allowed.
    """
    try:
        acts = (*opencode_acts(folder, environ, whole=whole), *more)
        missing = approvals(project, environ).missing(acts)
        missing = missing and approvals(find_project(folder), environ).missing(missing)
    except UnsafeFolder as error:
        raise NotTrusted(f"OpenCode was not started in {str(folder)!r}: {error}") from None
    if not missing:
        return
    command = "go-ent trust" if folder == project else f"go-ent trust {shlex.quote(str(folder))}"
    what = "; ".join(dict.fromkeys(act.says for act in missing[:3]))
    raise NotTrusted(
        f"OpenCode was not started in {str(folder)!r}: {in_few_words(missing)} is not trusted "
        f"({what}). Review and allow it with `{command}`, remove it, or use the method agent or api, "
        "which do not load it"
    )


def _follows_project(project: Path, environ: Mapping[str, str]) -> bool:
    try:
        return load_settings(project, environ).opencode.project_config
    except ConfigError:
        return False
