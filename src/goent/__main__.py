"""`python -m goent` is `go-ent`."""

from goent.launch import main

main()
