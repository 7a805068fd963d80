"""Values, events, errors, settings and ports. Imports only `goent.system`."""
