"""Rosters and signing keys of teams as files."""
