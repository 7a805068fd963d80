"""What the agent can do: read, write, edit, run, search, plan."""
