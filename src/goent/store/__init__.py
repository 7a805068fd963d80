"""The SQLite stores: journal, ledger, history, sessions and health."""
