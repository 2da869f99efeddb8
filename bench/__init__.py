"""Measures Shoal beside a bare loop: `python -m bench`."""
