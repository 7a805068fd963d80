"""Workers that are one model call a turn: no program, no tools, no OpenCode."""
