"""A run: which attempts are made, how each goes, what is kept of it."""
