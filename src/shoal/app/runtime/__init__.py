"""The services of a session with their lifetimes, and its event bus."""
