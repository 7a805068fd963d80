"""A run on one page that needs nothing else: no network, no other file, and no script to be read.

page      the page as a whole
overview  the verdict and the targets
spreads   how scores, costs, durations and graders are spread
changes   against an earlier run
cases     the list of cases
details   one case: what was asked, answered, done and found
plots, heat, axes   how numbers look
markup, words       how somebody else's words and our own are said
"""

from goent.evals.reports.html.cases import Asked
from goent.evals.reports.html.changes import Baseline
from goent.evals.reports.html.page import Report, html_report

__all__ = ["Asked", "Baseline", "Report", "html_report"]
