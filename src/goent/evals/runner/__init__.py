"""Runs an evaluation, and keeps its folder."""
