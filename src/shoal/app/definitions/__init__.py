"""Agents, instructions and plug-ins loaded from files, and the trust checks on the programs they bring."""
