"""What is kept: the journal of a project and the ledger of a user, in SQLite."""
