"""What a task is, and what that means for who gets it. Pure, but for `context` and `weights`."""
