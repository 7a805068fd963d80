"""Workers that are any ACP agent, and what all ACP drivers share."""
