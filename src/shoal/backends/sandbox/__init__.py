"""Sandboxes for shell commands: bubblewrap, Landlock, the macOS sandbox, and the choice among them."""
