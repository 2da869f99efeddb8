"""Configuration of a session: its options, its history, and the tools and prompt of its lead."""
