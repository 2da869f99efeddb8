"""A run as people see it, drawn from its events alone."""
