"""Hooks at work: which of them are told of an event, and how each is."""
