"""OpenCode as a worker: `opencode acp`, one warm process for many sessions.

driver      which process serves a worker, and when does one start or retire?
process     one running OpenCode: its ACP line, its inner HTTP server, its sessions
session     one worker's conversation                 questions   its open permission questions
inner       the inner HTTP server, typed              events      what that server tells unasked
translate   ACP updates as our events                 failures    foreign errors as ours
content     the generated configuration               environment what the process inherits
rules       permission rules as OpenCode reads them   binary      where the program is
"""

from goent.drivers.opencode.driver import OpenCodeDriver

__all__ = ["OpenCodeDriver"]
