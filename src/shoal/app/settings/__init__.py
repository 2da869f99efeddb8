"""Settings: environment and settings files, trust in project settings, and saved answers."""
