"""`go-ent swarm`: several tasks at once, watched together and merged.

commands   what can be asked, and with which exit code it ends
words      which word is a command and which a file, and which swarm is meant
watching   what a person sees while it runs, and what they can do about it
table      how a swarm looks while it runs
summary    how it looks when it is over
"""

from goent.frontends.cli.swarm.commands import swarm

__all__ = ["swarm"]
