"""Runs without a person at the keyboard: for scripts, and for programs that drive a run."""
