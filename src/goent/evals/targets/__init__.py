"""Targets: everything that can be tested."""
