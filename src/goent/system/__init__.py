"""Standard library only: locks, folders, plain files and peers."""
