"""The process that all clients of a project share: how it is found, started and spoken to."""
