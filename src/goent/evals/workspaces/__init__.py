"""A directory for each attempt, and what changed in it."""
