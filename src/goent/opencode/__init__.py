"""OpenCode as a worker: processes, sessions over ACP, HTTP and `opencode run`, and its configuration."""
