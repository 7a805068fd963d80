"""`python -m goent` is `go-ent`."""

from goent.entry import main

main()
