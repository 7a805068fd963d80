"""Rules of what a worker may do."""
