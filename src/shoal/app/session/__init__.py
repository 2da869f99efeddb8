"""The session: its construction, its run, and its control by people and programs."""
