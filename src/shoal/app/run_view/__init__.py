"""View of a run, built from its events alone."""
