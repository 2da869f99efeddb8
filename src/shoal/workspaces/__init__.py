"""Files that agents work on: workspaces, checkpoints and worktrees."""
