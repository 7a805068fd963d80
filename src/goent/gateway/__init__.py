"""Where the model calls of workers pass through: seen, attributed, metered."""
