"""A large team under continuous load: `python -m tests.load`."""
