"""go-ent's own agent: sessions, and the loop between model and tools."""
