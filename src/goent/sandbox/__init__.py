"""Confines the processes of workers: what they can write, read and reach."""
