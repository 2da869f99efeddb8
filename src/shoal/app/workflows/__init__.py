"""Workflows: plans in Python whose finished steps survive any crash."""
