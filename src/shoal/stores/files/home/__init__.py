"""The home directory: its paths, clean-up, trust and credentials."""
