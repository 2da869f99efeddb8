"""Stores on plain files."""
