"""The command line: what a person or a script asks of go-ent, and how the answer looks."""
