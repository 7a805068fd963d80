"""`go-ent acp`: the agent, as editors and other clients speak to it."""
