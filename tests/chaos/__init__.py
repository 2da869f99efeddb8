"""Many processes on one record, killed at random: `python -m tests.chaos`."""
