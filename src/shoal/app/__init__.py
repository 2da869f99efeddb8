"""The composition root: settings, building, the session."""
