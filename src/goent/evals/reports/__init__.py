"""Summarises and compares runs, as text, JUnit, Markdown and HTML."""
