"""Joins the other rooms: for the daemon, for the agent and for evaluations."""
