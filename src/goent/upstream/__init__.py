"""One model call, done right."""
