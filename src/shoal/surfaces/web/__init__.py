"""The live view of runs in a browser."""
