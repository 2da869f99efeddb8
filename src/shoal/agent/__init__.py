"""One agent's loop: what happens next for a single agent, told through ports."""
