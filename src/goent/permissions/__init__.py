"""Pure rules of what a worker may do."""
