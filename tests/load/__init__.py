"""A large team under work that goes on and on: `python -m tests.load`."""
