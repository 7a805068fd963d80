"""Reads suites and targets from files, and names every mistake in them."""
