"""A workspace per worker, its work as commits, conflicts and merges, all by the real git."""
