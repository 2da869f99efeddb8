"""Agents: definitions, identities, requests to start them, their worktrees, shells and schedules."""
