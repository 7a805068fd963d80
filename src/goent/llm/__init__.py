"""What goes over the wire to a model: the two dialects, their streams and their usage."""
