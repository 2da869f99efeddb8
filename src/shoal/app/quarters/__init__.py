"""Where work is done: the machine, the confines of commands, worktrees, and leases on files."""
