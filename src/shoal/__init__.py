"""Runs teams of LLM agents on real work."""
