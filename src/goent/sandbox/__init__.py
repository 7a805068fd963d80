"""Confinement of the processes that work for a worker: what they can write, read and reach."""
