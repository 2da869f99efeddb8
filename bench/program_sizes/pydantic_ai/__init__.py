"""Programs for the eight jobs."""
