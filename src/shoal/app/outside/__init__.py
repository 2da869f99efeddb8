"""Runs looked on at, steered and ended from other processes."""
