"""The tools an agent works with."""
