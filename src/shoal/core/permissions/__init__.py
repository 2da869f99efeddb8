"""Permissions: decisions, changes by a person, questions and the sandbox policy."""
