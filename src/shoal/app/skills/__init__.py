"""Skills and slash commands: files, text and invocation."""
