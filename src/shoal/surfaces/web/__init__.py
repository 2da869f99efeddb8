"""Live view of runs in a browser."""
