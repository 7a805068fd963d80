"""Graders: what a trace is worth, by rules that say the same of the same trace every time."""
