"""Evaluations: suites in, traces of what agents did, grades of them, reports out."""
