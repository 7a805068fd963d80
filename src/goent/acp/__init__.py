"""ACP's messages."""
