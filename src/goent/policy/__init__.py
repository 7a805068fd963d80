"""Pure decisions: no file, no socket, no clock."""
