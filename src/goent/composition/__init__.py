"""The only room that joins the others: for the daemon (`app`), for the agent and for evaluations."""
