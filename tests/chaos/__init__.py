"""Many processes on one team store, killed at random: `python -m tests.chaos`."""
