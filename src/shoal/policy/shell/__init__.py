"""Analysis of shell commands from their parsed structure."""
