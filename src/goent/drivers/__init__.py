"""The ways to run a worker, each a `Driver`."""
