"""OpenCode as a worker: `opencode acp`, one warm process for many sessions.

driver      the port: workers in, sessions out        pool        which process serves a worker
slot        the place for one process                 process     one running OpenCode, its sessions
watch       whether it answers and may stay           vitals      how it is, seen from outside
lasting     a session, in one process after another   session     one worker's session in a process
turn        the turn under way                        warmup      a directory made quick beforehand
questions   its open permission questions             rules       what rules say of them
inner       the inner HTTP server, typed              events      what that server tells unasked
translate   ACP updates as our events                 failures    foreign errors as ours
content     the generated configuration               environment what the process inherits
usage       tokens of calls that bypass the gate      binary      where the program is
"""

from goent.drivers.opencode.driver import OpenCodeDriver

__all__ = ["OpenCodeDriver"]
