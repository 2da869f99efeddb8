"""The files an agent works on."""
