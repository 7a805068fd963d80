"""How are go-ent's own workers evaluated? An attempt is a worker of the project's daemon, or a race of several."""
