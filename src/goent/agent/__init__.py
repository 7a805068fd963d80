"""go-ent's own agent: the loop between a model and its tools, and what a session remembers."""
