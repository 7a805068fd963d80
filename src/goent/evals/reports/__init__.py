"""What did a run show? Its rows, what can be concluded from them, and how that is told."""
