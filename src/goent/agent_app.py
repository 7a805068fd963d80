"""The composition root of `go-ent acp`: joins the agent with models, ledger and settings."""
