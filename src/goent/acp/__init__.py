"""The Agent Client Protocol, version 1: its messages as types, and nothing that moves them."""
