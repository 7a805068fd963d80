"""OpenCode as a target: `opencode serve`, ours or somebody else's, a session for each attempt.

settings    what can be set, and what is wrong with it     rules     what may be done unasked, which tools there are
servers     which server serves an attempt                 launches  how one of ours is started
target      the port: attempts in, traces out              attempting  one attempt: its session, from end to end
prompts     the case in OpenCode's words                   hearing   what the server tells meanwhile
permits     who decides about permissions                  growing   what was said so far
reading     messages and tool calls as a trace has them    logs      the stream log
accounts    who counts the model calls

HTTP client, event stream, pool of processes, configuration, environment and errors are those of `drivers.opencode`.
"""
