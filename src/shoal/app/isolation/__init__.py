"""Isolation of agents: machine checks, sandbox policies, worktrees and file leases."""
