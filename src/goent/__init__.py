"""go-ent: hand tasks to workers on any model."""

__version__ = "0.1.0"
