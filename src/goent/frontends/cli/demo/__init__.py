"""`go-ent demo`: the whole product at work, without a key and without touching anything.

stage     a sample project with scripted models and a daemon of its own, gone afterwards
board     what the audience sees while the workers work
play      the play itself: three tasks, one question, the results
together  its second act: a swarm, with a conflict and a failure
"""

from goent.frontends.cli.demo.play import run_demo

__all__ = ["run_demo"]
