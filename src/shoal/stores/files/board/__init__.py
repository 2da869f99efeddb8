"""The task board as files."""
