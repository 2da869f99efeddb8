"""Typed objects that Python programs use: agents, sessions, results and teams."""
