"""OpenCode as a worker: `opencode acp`, one warm process for many sessions.

driver      the port: workers in, sessions out        pool        which process serves a worker
slot        the place for one process                 process     one running OpenCode, its sessions
watch       whether it answers and may stay
lasting     a session, in one process after another   session     one worker's session in a process
turn        the turn under way                        warmup      a directory made quick beforehand
questions   its permission questions                  usage       tokens of calls that bypass the gate
client      the HTTP API, called                      shapes      what it says
events      what the server tells unasked             switchboard whose session it speaks of
hosted      any OpenCode process of ours              conversation any worker's session in one
acp_host    sessions and warmth of an `opencode acp`
translate   ACP updates as our events                 failures    foreign errors as ours
content     the generated configuration               environment what the process inherits
binary      where the program is                      version     whether go-ent works with it
guard       which tool calls may run
second_look calls that ran although nobody allowed them
"""

from goent.drivers.opencode.driver import OpenCodeDriver

__all__ = ["OpenCodeDriver"]
