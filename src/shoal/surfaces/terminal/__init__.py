"""Shared by both terminals: the controller of a session, its slash commands, and the texts for a person."""
