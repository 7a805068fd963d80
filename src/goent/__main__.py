"""Runs `go-ent` as `python -m goent`."""

from goent.entry import main

main()
