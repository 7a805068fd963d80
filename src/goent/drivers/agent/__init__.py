"""ACP agents as workers, a process each: go-ent's own (`go-ent acp`), or any other.

driver      the port: workers in, sessions out        launch      which command, with what environment
session     one worker's session and its turns        process     one running agent
opening     a new session, or the earlier one         models      the model that was asked for, chosen
turn        a turn, and what its end means            failures    an agent's refusals as ours
asking      what a permission question is about       subjects    what a tool call was given
translate   an agent's tool calls as our events       spending    what an agent says that it cost
modes       which of an agent's own modes fits        unasked     what it did without asking
watch       what holds other agents to their rules
"""

from goent.drivers.agent.driver import AgentDriver

__all__ = ["AgentDriver"]
