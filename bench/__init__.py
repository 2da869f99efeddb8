"""Measures Shoal against a bare loop: `python -m bench`."""
