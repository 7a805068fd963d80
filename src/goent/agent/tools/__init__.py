"""The tools of go-ent's own agent."""
