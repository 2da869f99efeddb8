"""Stores for transcripts, journals, team files and other data of runs."""
