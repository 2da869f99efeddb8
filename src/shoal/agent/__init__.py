"""Agent loop: decides what a single agent does next, using only ports."""
