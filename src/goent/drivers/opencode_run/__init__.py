"""OpenCode as a worker for one turn: `opencode run`, a process of its own per worker.

driver      the port: a worker in, a session out       session     the one turn of it, and its process
lines       what the process prints, as our events     verdict     what its end means
permission  our rules as OpenCode's configuration      subagents   what its subagents ran

Program, configuration, environment and the meaning of errors are shared with `drivers.opencode`.
"""

from goent.drivers.opencode_run.driver import OpenCodeRunDriver

__all__ = ["OpenCodeRunDriver"]
