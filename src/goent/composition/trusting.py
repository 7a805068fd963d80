"""All that waits for a person's yes in a project, whichever room knows of it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from goent.config.trust.survey import acts_of
from goent.domain.trust import Act
from goent.git.trust import git_acts

SUITES: Final = (".eval.yaml", ".eval.yml")
MOST_FOLDERS: Final = 5_000  # of a project that are searched for suites


def project_acts(project: Path, environ: Mapping[str, str], *named: Path) -> tuple[Act, ...]:
    """Settings, OpenCode's files, git's configuration, and evaluations.

    `named` are folders that OpenCode is to work in, and suites. Raises `UnsafeFolder`.
    """
    folders = [path for path in named if path.is_dir()]
    files = [path for path in named if not path.is_dir()]
    suites = dict.fromkeys((*files, *_suites(project)))
    return (
        *acts_of(project, environ, *folders),
        *git_acts(project, *folders),
        *_evaluations(tuple(suites), environ, project),
    )


def _evaluations(
    suites: tuple[Path, ...], environ: Mapping[str, str], project: Path
) -> tuple[Act, ...]:
    if not suites:
        return ()
    from goent.evals.attended.acting import acts_in_files  # noqa: PLC0415 (few projects have any)

    return acts_in_files(suites, environ, project)


def _suites(project: Path) -> Iterator[Path]:
    """Files that are suites by their names."""
    for number, (folder, below, names) in enumerate(os.walk(project)):
        if number >= MOST_FOLDERS:
            return
        below[:] = [name for name in below if not name.startswith(".") and name != "node_modules"]
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(SUITES))
