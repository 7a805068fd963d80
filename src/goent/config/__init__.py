"""Reads settings from files and the environment, and what of a project must be trusted first."""
