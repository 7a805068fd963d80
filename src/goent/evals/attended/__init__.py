"""Evaluations that a daemon runs beside its workers: each a process of its own, told about by what it writes."""
