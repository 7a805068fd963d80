"""What go-ent asks of git: worktrees, changes, conflicts, merges. By the real `git`, as a process."""
