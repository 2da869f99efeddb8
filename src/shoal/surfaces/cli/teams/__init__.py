"""`shoal team`: see teams, talk to them, stop and resume them, and start one from a template."""
