"""The home directory: its paths, cleanup, trust and credentials."""
