"""Several tasks at once.

view       what a swarm is now, the fold of its events      checks   can this list of tasks be done?
outcomes   what came of a worker that had a task             steps    what is to be done next?
races      who wins, of several that had the same task       engine   does it, for one swarm
swarms     what can be asked of them                         telling  statuses and results in short
joining    how work becomes one, and is checked              merging  `swarm_merge`, with it
"""
