"""Hooks: where they come from, and how agents get them."""
