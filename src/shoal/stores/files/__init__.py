"""The record on plain files."""
