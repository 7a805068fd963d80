"""`go-ent eval`: is what workers do any good, and is it better than before?

group       which commands there are
validating  are the files in order?
options     which cases, by whom, and who judges: what several commands are told
running     give the cases to the targets
foretelling what a run would do
grading     what do other graders say of a run that was kept?
comparing   is one run better than another?
reporting   what did a run show, for people and for build servers?
listing     which runs were kept?
importing   suites that were written for something else
folders     which run is meant?
conducting  a run or a grading: watched, interrupted, told in the end
attended    a run that a daemon started ends with it
progress    what a person sees while it runs: tally counts, drawing draws
summary     how it looks when it is over: table has the targets, wording the lines
advising    what can be done then
"""

from goent.frontends.cli.evals.group import evals

__all__ = ["evals"]
