"""Evaluations: suites of cases, who is tested, what their work was worth."""
