"""Graders: each looks at a trace and says what it was worth."""
