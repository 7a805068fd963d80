"""go-ent's own agent as editors speak to it, over ACP."""
