"""Who can be evaluated: a command, a fixture, a recording, OpenCode, go-ent's own workers."""
