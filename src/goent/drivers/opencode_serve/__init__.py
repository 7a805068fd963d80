"""OpenCode as a worker over HTTP: `opencode serve`, ours or one that somebody else runs.

driver      the port: which server serves a worker    server      our process, in the pool of processes
outside     a server that we did not start            session     one worker's session, turn by turn
parts       messages and their parts as our events

Pool, client, event stream, questions, configuration and errors are shared with `drivers.opencode`.
"""

from goent.drivers.opencode_serve.driver import OpenCodeServeDriver

__all__ = ["OpenCodeServeDriver"]
