"""Skills and commands: where they come from, their text, and their use."""
