"""Where things run: processes and their guardian."""
