"""Store in the memory of one process."""
