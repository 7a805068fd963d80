"""`go-ent eval report`: what did a run show, for people and for build servers?"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goent.domain.errors import GoentError, RequestError
from goent.frontends.cli.evals.folders import Newest, folder_of, manifest_of, newest_run, rows_of
from goent.frontends.cli.options import Json
from goent.frontends.cli.screen import complain

if TYPE_CHECKING:
    from goent.evals.reports.html import Asked
    from goent.evals.rows import Rows
    from goent.evals.running.folder import Manifest

STDOUT = Path("-")


def report(
    out: Newest = None,
    *,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page that needs nothing else; - is stdout."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="An earlier run that the page compares this one with."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write JUnit's XML there; - is stdout.")
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write it for a pull request; - is stdout."),
    ] = None,
    json: Json = False,
) -> int:
    """Tell what a run has shown, or write it to files. Nothing is run again."""
    from goent.frontends.cli.evals.summary import (  # noqa: PLC0415 (only here)
        print_summary_json,
        show_summary,
    )

    out = out or newest_run()
    folder = folder_of(out)
    read = rows_of(out)
    if [html, junit, markdown].count(STDOUT) + json > 1:
        raise RequestError("stdout takes one report: write the others to files")
    if baseline and not (html or markdown):
        raise RequestError(
            "--baseline is shown by --html and --markdown: add one of them, or use "
            f"`go-ent eval compare {folder_of(baseline)} {folder}`"
        )
    if html:
        _write(html, _page(read, folder, baseline).encode())
    if junit:
        _write(junit, _junit(read, folder))
    if markdown:
        _write(markdown, _markdown(read, folder, baseline).encode())
    if json:
        print_summary_json(read, folder)
    elif not (html or junit or markdown):
        show_summary(read, folder)
    return 0


def _junit(read: "Rows", folder: Path) -> bytes:
    from goent.evals.reports.evidence import reason_of  # noqa: PLC0415 (only here)
    from goent.evals.reports.junit import junit  # noqa: PLC0415 (only here)
    from goent.evals.running.extents import extent  # noqa: PLC0415 (only here)

    there = extent(read, folder)
    return junit(
        read.rows,
        name=folder.resolve().name,
        reason=lambda row: reason_of(row, folder),
        unrun=there.left_out if there.unrun else "",
    )


def _markdown(read: "Rows", folder: Path, baseline: Path | None) -> str:
    from goent.evals.reports.comparing import compare  # noqa: PLC0415 (only here)
    from goent.evals.reports.markdown import (  # noqa: PLC0415 (only here)
        comparison_markdown,
        summary_markdown,
    )
    from goent.evals.reports.summary import summarise  # noqa: PLC0415 (only here)
    from goent.evals.running.extents import extent  # noqa: PLC0415 (only here)

    told = summary_markdown(summarise(read.rows), extent(read, folder).notes)
    if baseline is None:
        return told
    return f"{told}\n{comparison_markdown(compare(rows_of(baseline).rows, read.rows))}"


def _page(read: "Rows", folder: Path, baseline: Path | None) -> str:
    from goent.evals.reports.comparing import compare  # noqa: PLC0415 (only here)
    from goent.evals.reports.html import Baseline, Report, html_report  # noqa: PLC0415 (only here)
    from goent.evals.running.extents import extent  # noqa: PLC0415 (only here)
    from goent.frontends.cli.evals.summary import result_of  # noqa: PLC0415 (only here)

    rows = read.rows

    before = None
    if baseline is not None:
        name = folder_of(baseline).resolve().name
        before = Baseline(name=name, comparison=compare(rows_of(baseline).rows, rows))
    manifest = manifest_of(folder)
    suites = sorted({row.suite for row in rows if row.suite})
    return html_report(
        rows,
        Report(
            name=", ".join(suites[:3]) + (", …" if suites[3:] else "") or folder.resolve().name,
            out=folder,
            graded_from=Path(manifest.graded_from) if manifest and manifest.graded_from else None,
            result=result_of(rows, folder),
            notes=extent(read, folder).notes,
            began=manifest.began.replace("T", " ")[:16] if manifest else "",
            asked=_asked(manifest) if manifest else {},
            baseline=before,
        ),
    )


def _asked(manifest: "Manifest") -> "Mapping[tuple[str, str], Asked]":
    """What the cases ask for, if their suites can still be read."""
    from goent.evals.files import load_suites  # noqa: PLC0415 (only here is YAML read)
    from goent.evals.reports.html import Asked  # noqa: PLC0415 (only here)

    try:
        paths = [Path(path) for path in manifest.suites]
        suites = load_suites(paths, os.environ, compat=manifest.wanted.compat)
    except (GoentError, OSError) as error:
        complain(f"the page has no inputs: the suites cannot be read any more: {error}")
        return {}
    return {
        (case.suite, case.id): Asked(
            input="\n\n".join(
                f"{said.role}: {said.text}" if said.role != "user" else said.text
                for said in case.everything_said
            ),
            criteria=case.criteria,
        )
        for suite in suites
        for case in suite.cases
    }


def _write(path: Path, content: bytes) -> None:
    if path == STDOUT:
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
        return
    if not path.parent.exists():
        raise RequestError(
            f"the report cannot be written to {str(path)!r}: there is no folder {str(path.parent)!r}; "
            "make it, or name another file"
        )
    try:
        path.write_bytes(content)
    except OSError as error:
        raise RequestError(
            f"the report cannot be written to {str(path)!r}: {error.strerror}; name another file"
        ) from error
    complain(f"written: {path}")
