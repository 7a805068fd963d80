"""Values, events, errors, settings and ports. Imports nothing else of ours."""
