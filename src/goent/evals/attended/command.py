"""Which command does a run, and which run does it go on with?"""

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from goent.config.trust.records import approvals
from goent.domain.errors import RequestError
from goent.domain.evaluations import EvalRunRequest
from goent.domain.trust import in_few_words
from goent.domain.types import Value
from goent.evals.attended.acting import evaluation_acts
from goent.evals.attended.places import Places
from goent.evals.running.folder import Manifest, read_manifest
from goent.evals.running.plan import Wanted, in_use
from goent.evals.running.preparing import Prepared, options
from goent.evals.running.ready import ready

CHOSEN: Final = (
    "suites",
    "target",
    "targets_file",
    "ids",
    "tags",
    "exclude_tags",
    "trials",
    "threshold",
    "judge",
    "compat",
    "out",
)


class Order(Value, frozen=True, kw_only=True):
    """A run, with every path inside the project. `before`: what is there is gone on with."""

    suites: tuple[Path, ...]
    wanted: Wanted
    targets_file: Path | None = None
    before: Path | None = None

    def prepared(self, environ: Mapping[str, str], project: Path) -> Prepared:
        """What there is to be done. Raises `ConfigError` with every mistake in the files.

        And a `RequestError` for what they would do and nobody has allowed.
        """
        found = ready(
            self.suites, environ, self.wanted, project=project, targets_file=self.targets_file
        )
        used = in_use(found.trials, found.specs).values()
        if missing := approvals(project, environ).missing(
            evaluation_acts(found.suites, used, project)
        ):
            files = " ".join(shlex.quote(str(suite)) for suite in self.suites)
            raise RequestError(
                f"the evaluation was not started: {in_few_words(missing)} is not trusted "
                f"({missing[0].says}). Ask the user to review and allow it with `go-ent trust {files}`, "
                "or to run `go-ent eval run` in a terminal"
            )
        return found

    def command(self, request: EvalRunRequest, folder: Path) -> list[str]:
        resume = ("--retry", request.retry) if request.retry else ("--resume",)
        return [
            # -P: a project must not be able to put its own modules in the way of who holds the keys.
            *(sys.executable, "-P", "-m", "goent", "eval", "run"),
            *("--out", str(folder), "--json", "--attended"),
            *options(self.wanted, self.targets_file),
            *_bounds(request),
            *(resume if self.before else ()),
            *("--", *map(str, self.suites)),
        ]


def ordered(request: EvalRunRequest, base: Path, places: Places) -> Order:
    """Raises `RequestError`."""
    if request.resume is not None:
        return _resumed(request, base, places)
    if not request.suites:
        raise RequestError("no suite is named: pass suites, or resume with the id of a run")
    if request.retry:
        raise RequestError("retry is for a run that is gone on with: pass resume with its id")
    suites = tuple(places.inside(suite, base, "suite") for suite in request.suites)
    for asked, suite in zip(request.suites, suites, strict=True):
        if not suite.exists():
            raise RequestError(f"suite {asked!r} does not exist in {str(base)!r}")
    named = request.targets_file
    return Order(
        suites=suites,
        targets_file=places.inside(named, base, "targets_file") if named else None,
        wanted=Wanted(
            targets=request.target,
            ids=request.ids,
            tags=request.tags,
            without_tags=request.exclude_tags,
            trials=request.trials,
            threshold=request.threshold,
            judge=request.judge or "",
            compat=request.compat is not None,
        ),
    )


def _resumed(request: EvalRunRequest, base: Path, places: Places) -> Order:
    """What the run was asked for then: it is gone on with as it was begun."""
    given = [name for name in CHOSEN if getattr(request, name)]
    if given:
        raise RequestError(
            f"a run is gone on with as it was begun: leave {', '.join(given)} out, or begin another"
        )
    folder = places.found(request.resume or "", base)
    manifest: Manifest = read_manifest(folder)
    for path in (*manifest.suites, *filter(None, [manifest.targets_file])):
        places.inside(path, base, "what the run was made of,")
    return Order(
        suites=tuple(Path(suite) for suite in manifest.suites),
        targets_file=Path(manifest.targets_file) if manifest.targets_file else None,
        wanted=manifest.wanted,
        before=folder,
    )


def _bounds(request: EvalRunRequest) -> Iterator[str]:
    if request.workers is not None:
        yield from ("--workers", str(request.workers))
    if request.budget_usd is not None:
        yield from ("--budget-usd", str(request.budget_usd))
    if request.timeout_s is not None:
        yield from ("--timeout", str(request.timeout_s))
