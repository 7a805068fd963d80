"""`go-ent eval` and its commands. Each loads what it needs when it is called: `go-ent --help` stays fast."""

import typer

from goent.frontends.cli.evals.comparing import compare
from goent.frontends.cli.evals.grading import grade
from goent.frontends.cli.evals.importing import import_
from goent.frontends.cli.evals.listing import list_
from goent.frontends.cli.evals.reporting import report
from goent.frontends.cli.evals.running import run
from goent.frontends.cli.evals.validating import validate

evals = typer.Typer(
    no_args_is_help=True,
    help="Try workers on suites of cases, grade what they did, and tell whether it got better."
    "\n\nExits 0 if all is well, 1 if quality is not, 2 if a file is wrong, 3 if attempts failed.",
)
for command in (run, grade, validate, compare, report):
    evals.command()(command)
evals.command("list")(list_)
evals.command("import")(import_)
