"""Shared fixtures of the team tests."""
