"""What of a project's files waits for a person's yes, and what they have said yes to."""
