"""Reads the suites of other tools."""
