"""A worker's life, its turns, its events and its results."""
