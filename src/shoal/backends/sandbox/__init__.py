"""What confines shell commands: bubblewrap, Landlock, the sandbox of macOS; and the choice among them."""
