"""Workers that are one model call a turn."""
