"""The commands that people type, and what they see in a terminal."""
