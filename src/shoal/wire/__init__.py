"""Codecs between types and JSON: the only package where a mapping becomes a type."""
