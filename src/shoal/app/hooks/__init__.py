"""Hooks: their sources, and the hooks of each agent."""
